"""What a message names, shortened."""

from common.shortening import few, shortened


def test_a_few_words_stand_alone_and_many_are_counted() -> None:
    assert few([], 2) == "" and few(["a", "b"], 2) == "a, b"
    assert few(["a", "b", "c", "d", "e"], 2) == "a, b and 3 more"
    assert few(["a", "b", "c"], 1, "; ") == "a; and 2 more"


def test_a_text_is_cut_where_it_is_too_long_and_nowhere_else() -> None:
    assert shortened("four", 4) == "four" and shortened("fives", 4) == "five..."
