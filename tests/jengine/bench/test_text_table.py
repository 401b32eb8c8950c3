from jengine.bench.text_table import format_table


def test_columns_are_as_wide_as_their_widest_cell():
    table = format_table(["batch", "a"], [["1", "1234.5"], ["64", "7"]])
    assert table == ("batch       a\n-----  ------\n1      1234.5\n64          7\n")


def test_a_table_without_rows():
    assert format_table(["a", "bc"], []) == "a  bc\n-  --\n"
