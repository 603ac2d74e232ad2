"""Names the file of a template as SimAI's next command expects it, or after every value that differs."""

from simulation.topology import options
from simulation.topology.options import Given

IN_EVERY_NAME = ("gpu", "gpu_per_server", "bandwidth", "gpu_type")
WITHOUT_EFFECT = ("asw_switch_num",)


def file_name(given: Given, *, full: bool) -> str:
    """The name in the current folder; with `full` also each value that is not the template's default."""
    values = given.values
    size = f"{values['gpu']}g_{values['gpu_per_server']}gps"
    end = f"{values['bandwidth']}_{values['gpu_type']}"
    name = _with_size(given, size, end).replace("/", "p")  # 400Gb/s is no folder
    return name + "".join(_deviations(given)) if full else name


def _with_size(given: Given, size: str, end: str) -> str:
    rail, dual_tor, dual_plane = given.structure
    plane = "DualPlane" if dual_plane else "SinglePlane"
    tor = "DualToR" if dual_tor else "SingleToR"
    if given.template in (options.SPECTRUM_X, options.NVL):
        return f"{given.template}_{size}_{end}"
    if given.template == options.ALIBABA_HPN:
        return f"AlibabaHPN_{size}_DualToR_{plane}_{end}"
    if given.template == options.DCN:
        return f"DCN+{tor}_{size}_{end}"
    if not rail:
        return f"No_Rail_Opti_{size}_{tor}_{end}"
    return f"Rail_Opti_{size}_DualToR_{plane}_{end}" if dual_tor else f"Rail_Opti_SingleToR_{size}_{end}"


def _deviations(given: Given) -> list[str]:
    """`_psn2` for each value that is neither in every name nor the template's default."""
    return [
        f"_{option.short[1:]}{given.values[option.name]}".replace("/", "p")
        for option in options.OPTIONS
        if option.name not in (*IN_EVERY_NAME, *WITHOUT_EFFECT)
        and given.values[option.name] != given.defaults[option.name]
    ]
