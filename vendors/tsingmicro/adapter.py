"""Vendor `tsingmicro`: Tsingmicro's accelerators, and the text of tsm_smi."""

from vendors.base import Vendor
from vendors.tools import Tool

# As FlagPerf keeps it: the text. No output is documented, so that no number is read of it.
TOOL = Tool(command=("tsm_smi",))


VENDOR = Vendor(
    name="tsingmicro",
    visible_devices_env="TSINGMICRO_VISIBLE_DEVICES",
    backend="gloo",  # ranks compute on the host: how its torch is used has no public document
    container_options="--device /dev/accel --device /dev/accel_drv_mgr",
    device_files=("/dev/accel*",),
    open_probe=TOOL.open_probe,
    monitor_name="tsingmicro",
)
