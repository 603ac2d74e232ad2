"""A target whose link ends while its engine is asked is that target's error, not the source's."""

from pathlib import Path
from typing import Any, cast

import pytest
from docker import APIClient

from container import distribute
from container.distribute import transfer
from container.image import ImageIdentity

IMAGE = ImageIdentity(id="sha256:12", layers=("a",), labels=(), size=1)


@pytest.mark.parametrize("error", [EOFError(), ConnectionResetError("reset"), OSError("gone")])
def test_the_target_whose_link_ends_is_named_and_the_others_get_the_image(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answered(client: Any, tag: str) -> ImageIdentity:
        if client == "lost":
            raise error
        return IMAGE

    monkeypatch.setattr(distribute, "identity", answered)
    clients = {name: cast(APIClient, name) for name in ("lost", "there")}
    failed = transfer(cast(APIClient, "source"), clients, "image:1", tmp_path, lambda *_: None, 2)
    assert failed.keys() == {"lost"}
    assert type(error).__name__ in str(failed["lost"]) or str(error) in str(failed["lost"])
