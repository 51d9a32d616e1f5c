"""Micro-batches cover every row once and keep to their budget."""

from hypothesis import given
from hypothesis import strategies as st

from stratified_grpo.packing import micro_batches


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 200))
def test_every_row_is_in_one_batch_of_at_most_the_budget(lengths, budget):
    batches = micro_batches(lengths, budget)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[i] for i in batch)
        assert len(batch) == 1 or len(batch) * longest <= budget


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(1, 200))
def test_rows_are_sorted_by_length_and_ties_by_index(lengths, budget):
    flat = [i for batch in micro_batches(lengths, budget) for i in batch]
    assert flat == sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(1, 200))
def test_no_batch_could_have_taken_the_next_row(lengths, budget):
    batches = micro_batches(lengths, budget)
    for batch in batches[:-1]:
        assert (len(batch) + 1) * lengths[batch[0]] > budget


def test_a_row_longer_than_the_budget_goes_alone():
    assert micro_batches([3, 30, 3], 10) == [[1], [0, 2]]
    assert micro_batches([], 10) == []
