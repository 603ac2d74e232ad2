"""Datasheet of Iluvatar CoreX's BI-V100 (Big Island)."""

from vendors.datasheet import row

_BIG_ISLAND = (
    "Iluvatar CoreX's announcement of its first accelerator, 31 March 2021, as reported by"
    " https://geektopia.es/es/technology/2021/04/05/noticias/amp/"
    "la-empresa-china-tianshu-zhixin-empieza-la-produccion-de-su-gpgpu-a-7-nm-alcanza-los-37-tflops.html;"
    " the name as ixsmi prints the BI-V150's"
)
_RATES = {"fp32": 37.0, "bf16": 147.0, "fp16": 147.0, "int8": 295.0}
DATASHEETS = (row("BI-V100", _BIG_ISLAND, _RATES, (1200, 32), (32, None), "Iluvatar BI-V100"),)
