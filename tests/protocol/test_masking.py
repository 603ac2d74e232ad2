"""Tokens, passwords and keys are masked wherever they are written down; what only looks like them is not."""

import pytest

from protocol.masking import (
    mask_argv,
    mask_config,
    mask_environment,
    mask_output,
    may_mask,
    secret_spans,
    secret_values,
)


@pytest.mark.parametrize(
    "key",
    [
        "hf_token",
        "token",
        "wandb.api_key",
        "password",
        "db-passwd",
        "private_key",
        "github_pat",
        "cookies",
        "webhook_url",
    ],
)
def test_secrets_in_settings_and_commands(key: str) -> None:
    assert mask_config({"a": [{key: "s3cret", "lr": 1}]}) == {"a": [{key: "***", "lr": 1}]}
    assert mask_argv(["x", f"--{key}", "s3cret", "y"]) == ["x", f"--{key}", "***", "y"]
    assert mask_argv(["x", f"--{key}=s3cret\nmore"]) == ["x", f"--{key}=***"]
    assert mask_argv(["--set", f'{key}="s3cret"', "--set", "lr=1"]) == ["--set", f"{key}=***", "--set", "lr=1"]


@pytest.mark.parametrize(
    "key",
    [
        "tokenizer",
        "max_tokens",
        "experts_per_token",
        "tokens_per_s",
        "key",
        "seed",
        "author",
        "path",
        "compat",
        "cookie_size",
    ],
)
def test_what_is_no_secret_stays(key: str) -> None:
    assert mask_config({key: "v"}) == {key: "v"}
    assert mask_argv([f"--{key}", "v", f"{key}=v"]) == [f"--{key}", "v", f"{key}=v"]


def test_urls_and_empty_values() -> None:
    url = "http://user:s3cret@proxy:3128/x"
    assert "s3cret" not in str(mask_config({"proxy": url, "nested": [url]})) + str(mask_argv([url]))
    assert "s3cret" not in str(mask_environment({"HTTP_PROXY": url, "WANDB_API_KEY": "s3cret"}))
    assert mask_config({"hf_token": None}) == {"hf_token": None}


@pytest.mark.parametrize(
    "name",
    [
        "ssh_passphrase",
        "DB_PASS",
        "MYSQL_PWD",
        "SIGNING_KEY",
        "KEY",
        "APIKEY",
        "GH_PAT",
        "PAT",
        "SESSION_COOKIE",
        "SLACK_WEBHOOK_URL",
    ],
)
def test_names_of_variables_that_tell(name: str) -> None:
    assert mask_environment({name: "s3cret"}) == {name: "***"}


@pytest.mark.parametrize(
    "name", ["PWD", "OLDPWD", "NCCL_IB_PKEY", "KEYBOARD", "BYPASS", "COMPASS_DIR", "PATH", "LD_LIBRARY_PATH"]
)
def test_names_of_variables_that_only_look_so(name: str) -> None:
    assert mask_environment({name: "v"}) == {name: "v"}


SECRETS = {"HF_TOKEN": "hf_0123456789", "KEY_PRIVATE": "-----BEGIN\nabcdefgh\n", "TOKENIZERS_PARALLELISM": "false"}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("the token hf_0123456789 was refused\n", "the token *** was refused\n"),
        ('{"config": {"x": "hf_0123456789"}}\r\n', '{"config": {"x": "***"}}\r\n'),
        ("abcdefgh\n", "***\n"),
        ("MY_TOKEN=1234 db.password='56'&next=7\n", "MY_TOKEN=*** db.password='***'&next=7\n"),
        ('{"argv": "--api_key=1234", "n": 1}', '{"argv": "--api_key=***", "n": 1}'),
        ('{"argv": "--set api_key=\\"12\\"", "n": 1}', '{"argv": "--set api_key=\\"***\\"", "n": 1}'),
        ("from http://me:pass@proxy/x\n", "from http://me:***@proxy/x\n"),
        (
            "from https://ghp_0123456789@host/x, ssh://somebody1@host\n",
            "from https://***@host/x, ssh://somebody1@host\n",
        ),
        ('{"hf_token": "abc d\\"e", "n": 1}', '{"hf_token": "***", "n": 1}'),
        ("{'hf_token': 'abc', 'n': 1}", "{'hf_token': '***', 'n': 1}"),
        ('{"argv": "{\\"my_pat\\" : \\"abc\\", \\"n\\": 1}"}', '{"argv": "{\\"my_pat\\" : \\"***\\", \\"n\\": 1}"}'),
        ('"session.cookie":"a=b; c=d"\n"webhook": "https://x/y"', '"session.cookie":"***"\n"webhook": "***"'),
        ('"Api_Key": "cut off\nnext line', '"Api_Key": "***\nnext line'),
        ('{"max_tokens": "4096", "tokens": "12", "path": "/x", "key": "k"}',) * 2,
        ("max_tokens=4096 tokens_per_s=12 false\n", "max_tokens=4096 tokens_per_s=12 false\n"),
    ],
)
def test_what_a_program_wrote(line: str, expected: str) -> None:
    assert mask_output(line, secret_values(SECRETS)) == expected


def test_secrets_are_also_in_the_settings_of_a_case() -> None:
    assert secret_values({}, ["--set", 'wandb.api_key="0123\\u00e9456789"', "--set", "lr=1e-4"]) == {
        "0123\\u00e9456789",
        "0123\\\\u00e9456789",
    }


@pytest.mark.parametrize(
    "line", ['{"hf_token": "abc"}', "x='1' db_password=abc", '{\\"cookie\\":\\"abc\\"}', "WEBHOOK=abc"]
)
def test_the_quick_look_misses_nothing_that_is_masked(line: str) -> None:
    assert mask_output(line, ()) != line and may_mask(line.encode(), ())
    (first, end) = secret_spans(line)[0]
    assert "abc" in line[first:end]


def test_the_masking_of_a_long_line_takes_no_more_than_its_length() -> None:
    """Quotes and names without an end would make a pattern that goes back try again and again."""
    line = '"token": "' * 50_000 + "\\" * 200_000
    assert mask_output(line, ()).count("***") >= 1
