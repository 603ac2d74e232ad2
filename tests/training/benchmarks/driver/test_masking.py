"""Tokens, passwords and keys are masked wherever they are written down; what only looks like them is not."""

from __future__ import annotations

import pytest

from training.benchmarks.driver.masking import mask_argv, mask_config, mask_environment


@pytest.mark.parametrize("key", ["hf_token", "token", "wandb.api_key", "password", "db-passwd", "private_key"])
def test_secrets_in_settings_and_commands(key: str) -> None:
    assert mask_config({"a": [{key: "s3cret", "lr": 1}]}) == {"a": [{key: "***", "lr": 1}]}
    assert mask_argv(["x", f"--{key}", "s3cret", "y"]) == ["x", f"--{key}", "***", "y"]
    assert mask_argv(["x", f"--{key}=s3cret\nmore"]) == ["x", f"--{key}=***"]
    assert mask_argv(["--set", f'{key}="s3cret"', "--set", "lr=1"]) == ["--set", f"{key}=***", "--set", "lr=1"]


@pytest.mark.parametrize("key", ["tokenizer", "max_tokens", "tokens_per_s", "key", "seed", "author"])
def test_what_is_no_secret_stays(key: str) -> None:
    assert mask_config({key: "v"}) == {key: "v"}
    assert mask_argv([f"--{key}", "v", f"{key}=v"]) == [f"--{key}", "v", f"{key}=v"]


def test_urls_and_empty_values() -> None:
    url = "http://user:s3cret@proxy:3128/x"
    assert "s3cret" not in str(mask_config({"proxy": url, "nested": [url]})) + str(mask_argv([url]))
    assert "s3cret" not in str(mask_environment({"HTTP_PROXY": url, "WANDB_API_KEY": "s3cret"}))
    assert mask_config({"hf_token": None}) == {"hf_token": None}
