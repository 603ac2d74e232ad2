"""Names of images: the examples of distribution/reference, whose parser Docker's engine uses (reference_test.go)."""

import pytest

from container.reference import is_reference

SHA256 = "sha256:" + "f" * 64


@pytest.mark.parametrize(
    "text",
    [
        "test_com", "test.com:tag", "test.com:5000", "test.com/repo:tag", "test:5000/repo", "test:5000/repo:tag",
        f"test:5000/repo@{SHA256}", f"test:5000/repo:tag@{SHA256}", "lowercase:Uppercase", "domain.com/a/a/a/a",
        "sub-dom1.foo.com/bar/baz/quux:some-long-tag", "b.gcr.io/test.example.com/my-app:test.example.com",
        "xn--n3h.com/myimage:xn--n3h.com", "foo_bar.com:8080", "foo/foo_bar.com:8080", "192.168.1.1:80/repo",
        "[2001:db8::1]:5000/repo:tag", "Uppercase/lowercase:tag", SHA256, "a__b/c---d",
    ],
)  # fmt: skip
def test_a_reference_of_an_image(text: str) -> None:
    assert is_reference(text)


@pytest.mark.parametrize(
    "text",
    [
        "", ":justtag", f"@{SHA256}", "repo@sha256:ffff", "Uppercase:tag", "test:5000/Uppercase/lowercase:tag",
        "aa/asdf$$^/aa", "-test:5000/repo", "a//b", "a_.b", "a b:tag", "a:tag ", "a:tag\n", "https://a/b",
        "a:" + "t" * 129,
    ],
)  # fmt: skip
def test_no_reference_of_an_image(text: str) -> None:
    assert not is_reference(text)
