"""The GPU's counters, read through NVML. What NVML does not know is absent, never 0."""

from collections.abc import Callable, Iterable
from typing import Any

# Why clocks are held down (bits of nvml.h). Idle (0x1), chosen application clocks (0x2) and display
# clocks (0x100) are left out: they are no sign of trouble.
_THROTTLE_REASONS = {
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake",
    0x200: "board_limit",
    0x400: "reliability",
}

# nvml.h's NVML_VALUE_NOT_AVAILABLE, in the two widths that counters have.
_NOT_AVAILABLE = (2**32 - 1, 2**64 - 1)


class GpuReader:
    """Reads one GPU's counters; `find` makes one."""

    def __init__(self, nvml: Any, handle: Any, own_pids: Iterable[int] = ()) -> None:
        self._nvml = nvml
        self._own_pids = set(own_pids)
        self._readings: dict[str, Callable[[], Any]] = {
            "gpu_util": lambda: _known(nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
            "gpu_memory_util": lambda: _known(nvml.nvmlDeviceGetUtilizationRates(handle).memory),
            "gpu_memory_used_bytes": lambda: _known(nvml.nvmlDeviceGetMemoryInfo(handle).used),
            "gpu_power_w": lambda: _known(nvml.nvmlDeviceGetPowerUsage(handle), 1000),
            "gpu_energy_j": lambda: _known(nvml.nvmlDeviceGetTotalEnergyConsumption(handle), 1000),
            "gpu_sm_clock_mhz": lambda: _known(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            "gpu_temperature_c": lambda: _known(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            "gpu_throttle_reasons": lambda: throttle_reasons(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
            "other_processes": lambda: self._others(nvml.nvmlDeviceGetComputeRunningProcesses(handle)),
        }

    @classmethod
    def find(cls, uuid: str, own_pids: Iterable[int] = (), nvml: Any = None) -> "GpuReader | None":
        """The reader of the CUDA device `uuid`, or None without driver, library or such a device.

        CUDA's index is not NVML's, so the UUID is what joins them. torch gives it without the prefix
        that NVML wants. `own_pids` are the benchmark's processes, for `other_processes`.
        """
        nvml = nvml or load_nvml()
        try:
            nvml.nvmlInit()
        except nvml.NVMLError:
            return None
        prefixed = uuid.startswith(("GPU-", "MIG-"))
        for name in [uuid] if prefixed else [f"GPU-{uuid}", f"MIG-{uuid}"]:
            try:
                return cls(nvml, nvml.nvmlDeviceGetHandleByUUID(name), own_pids)
            except nvml.NVMLError:
                continue
        nvml.nvmlShutdown()
        return None

    def read(self) -> dict[str, Any]:
        """What is known now: percent, bytes, watts, joules since the driver's start, MHz, °C, two lists."""
        values = {}
        for name, reading in self._readings.items():
            try:
                value = reading()
            except self._nvml.NVMLError:
                continue
            if value is not None:
                values[name] = value
        return values

    def close(self) -> None:
        """Let go of NVML. No reading afterwards."""
        self._nvml.nvmlShutdown()

    def _others(self, processes: list[Any]) -> list[int] | None:
        """Process ids of strangers; unknown where none of ours is seen.

        In a container NVML may count in the host's process ids, where ours would look like strangers.
        """
        pids = {int(process.pid) for process in processes}
        return sorted(pids - self._own_pids) if pids & self._own_pids else None


def throttle_reasons(bits: int) -> list[str]:
    """Names of the reasons in NVML's bit mask that mean less speed than asked for."""
    return [name for bit, name in _THROTTLE_REASONS.items() if bits & bit]


def list_gpus(nvml: Any = None) -> list[dict[str, Any]] | None:
    """Name, UUID, memory and driver of each GPU, and None where NVML cannot be asked.

    NVML is left as it was found; no CUDA context is made.
    """
    nvml = nvml or load_nvml()
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    try:
        return [_describe(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError:
        return None
    finally:
        nvml.nvmlShutdown()


def _describe(nvml: Any, index: int) -> dict[str, Any]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    readings: dict[str, Callable[[], Any]] = {
        "name": lambda: nvml.nvmlDeviceGetName(handle),
        "uuid": lambda: nvml.nvmlDeviceGetUUID(handle),
        "memory_bytes": lambda: _known(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        "driver": nvml.nvmlSystemGetDriverVersion,
        "cuda_driver": lambda: _cuda_version(nvml.nvmlSystemGetCudaDriverVersion_v2()),
    }
    described = {}
    for name, reading in readings.items():
        try:
            described[name] = reading()
        except nvml.NVMLError:
            continue
    return {name: value for name, value in described.items() if value is not None}


def _known(value: int, divisor: int = 1) -> float | None:
    """`value` in the unit wanted, or None for NVML's mark of a value that is not available."""
    if value in _NOT_AVAILABLE:
        return None
    return value if divisor == 1 else value / divisor


def _cuda_version(number: int) -> str:
    """12040 as "12.4"."""
    return f"{number // 1000}.{number % 1000 // 10}"


def load_nvml() -> Any:
    """The NVML module. Its import takes longer than a reading, so a sampler does it ahead of time."""
    import pynvml  # here, since most processes that read this module never ask NVML

    return pynvml
