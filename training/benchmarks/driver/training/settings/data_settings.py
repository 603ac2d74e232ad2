"""Settings of where a training's data comes from. Needs no torch."""

from typing import Literal

from pydantic import Field

from training.benchmarks.driver.training.settings.layout_settings import LayoutSettings


class DataSettings(LayoutSettings):
    """The data: made on the fly, or files in the case's data folder."""

    data: Literal["synthetic", "files"] = Field("files", description="data made on the fly, or read from data_dir")
    train_samples: int = Field(4096, ge=1, description="samples of the synthetic training set")
    eval_samples: int = Field(512, ge=1, description="samples of the synthetic evaluation set")
    identify_data: bool = Field(True, description="whether the sha256 of every file that is read is recorded")
    num_workers: int = Field(0, ge=0, description="processes that load data for each rank; 0: the rank itself")

    def data_refusal(self, *, has_folder: bool) -> str | None:
        if self.data == "files" and not has_folder:
            return "data = 'files' needs a folder: set it and data_dir_container, or data = 'synthetic' of the config"
        if self.data == "synthetic" and has_folder:
            return "has no effect with data = 'synthetic'; leave it out, or set data = 'files'"
        return None
