"""What was seen becomes findings: messages, places, owners, identifiers, and marks that allow them."""

from __future__ import annotations

from dataclasses import replace

from noyau.errors import FindingKind
from noyau.sanitizer.records import Access, Observation, Route, Site, WatchedMemory, digest, findings_of

WRITE = Site("k.py", 4, "out[i // 2] = x[i]")
READ = Site("k.py", 9, "s = out[i]")
RACE = Observation(FindingKind.RACE, Access.WRITE, 0, 2, 5, 0, Access.READ, 1, 1, count=3)


def found(seen, *sites):
    route = Route(
        "numba",
        "op",
        "kernel",
        "n = 8",
        sites or (WRITE, READ),
        {0: WatchedMemory("out", (2, 4))},
        lambda n: f"iteration {n}",
        {},
    )
    return findings_of([seen], route)


def test_a_race_tells_both_lines_owners_and_the_cell():
    ((finding,), allowed) = found(RACE)
    assert finding.message == (
        "iteration 2 writes out[1, 1], read by iteration 1 on line 9, and nothing orders them (3 times)"
    )
    told = finding.to_json()
    assert (told["file"], told["line"], told["other_line"], told["cell"]) == ("k.py", 4, 9, [1, 1])
    assert told["owners"] == ["iteration 2", "iteration 1"]
    assert "atomic" in told["remedy"]
    assert allowed == []


def test_an_access_of_a_library_has_no_line():
    ((finding,), _) = found(replace(RACE, other_site=-1))
    assert "on a line of a library, and nothing orders them" in finding.message
    assert finding.other_place == ""


def test_an_index_outside_tells_its_axis():
    ((finding,), _) = found(Observation(FindingKind.OUT_OF_BOUNDS, Access.READ, 0, 2, 4, 0, axis=1, extent=4))
    assert finding.message == "iteration 2 reads out at 4 along axis 1, which has 4 cells"
    assert finding.cell is None
    ((finding,), _) = found(Observation(FindingKind.NEGATIVE_INDEX, Access.READ, 0, 2, -1, 0, axis=0, extent=2))
    assert finding.severity == "warning"
    assert "counts from the end" in finding.message


def test_other_kinds():
    ((finding,), _) = found(replace(RACE, kind=FindingKind.WRITTEN_TWICE, other_access=Access.WRITE, other_site=0))
    assert "on the same line, the same value" in finding.message
    ((finding,), _) = found(replace(RACE, kind=FindingKind.UNINITIALISED, access=Access.READ))
    assert "which nobody wrote before" in finding.message
    ((finding,), _) = found(replace(RACE, kind=FindingKind.DIVERGENT_BARRIER, memory=-1, count=1))
    assert finding.message == "iteration 2: divergent-barrier"


def test_an_identifier_is_of_what_the_lines_say_not_of_their_numbers():
    ((finding,), _), ((moved,), _) = found(RACE), found(RACE, replace(WRITE, line=40), replace(READ, line=50))
    assert finding.id == moved.id == f"op[kernel]:race:{digest('race', 'kernel', WRITE.text, READ.text)}"
    ((other,), _) = found(RACE, replace(WRITE, text="out[i] = 1"), READ)
    assert other.id != finding.id


def test_a_mark_allows_a_kind_on_either_line():
    marked = replace(READ, text="s = out[i]  # noyau: allow(race, written-twice) old values do")
    assert found(RACE, WRITE, marked) == ([], ["race allowed at k.py:9: old values do"])
    ((_,), allowed) = found(replace(RACE, kind=FindingKind.UNINITIALISED), WRITE, marked)
    assert allowed == []
    in_c = replace(WRITE, text="a[0] = 1; // noyau: allow(race)")
    assert found(RACE, in_c, READ)[1] == ["race allowed at k.py:4: without a reason"]


def test_a_site_reads_its_line():
    assert Site.of(__file__, 1).text.startswith('"""What was seen')


def test_a_route_may_word_a_kind_itself():
    route = Route(
        "cuda",
        *("op", "kernel", ""),
        (WRITE, READ),
        {},
        str,
        {FindingKind.RACE: "wait"},
        {FindingKind.RACE: lambda seen, _: f"{seen.owner} hurries"},
    )
    ((finding,), _) = findings_of([RACE], route)
    assert (finding.message, finding.remedy) == ("2 hurries", "wait")


def test_a_race_is_told_before_the_early_read_that_it_leads_to():
    early = replace(RACE, kind=FindingKind.UNINITIALISED, access=Access.READ, other_site=-1)
    other = replace(early, site=1, memory=1)
    route = Route("cuda", "op", "kernel", "", (WRITE, READ), {}, str)
    findings, _ = findings_of([early, other, RACE], route)
    assert [(each.kind, each.place) for each in findings] == [
        ("uninitialised", "k.py:9"),
        ("race", "k.py:4"),
        ("uninitialised", "k.py:4"),
    ]


def test_what_mends_a_race_follows_who_races():
    def mend(*seen: Observation, host: int = -1) -> str:
        owners = {n: f"thread {n} of block 0" for n in range(4)} | {host: "the host"}
        route = Route("numba_cuda", "op", "kernel", "", (WRITE, READ), {}, owners.__getitem__)
        remedy = findings_of(seen, route)[0][0].remedy
        words = {
            "before the host": "a wait",
            "cuda.syncwarp()": "a wait of a warp",
            "cuda.syncthreads()": "a barrier",
            "a second array": "an array",
            "orders two blocks": "an atomic",
            "cuda.atomic,": "an update",
        }
        return next(told for part, told in words.items() if part in remedy)

    read = replace(RACE, access=Access.READ, other_access=Access.WRITE, other_site=0)
    both = replace(read, access=Access.WRITE)
    reaches = [mend(replace(RACE, reach=reach)) for reach in range(4)]
    assert reaches == ["a wait of a warp", "a barrier", "an array", "a barrier"]
    assert (mend(replace(both, reach=2)), mend(RACE, host=1)) == ("an atomic", "a wait")
    assert (mend(read), mend(both), mend(read, both)) == ("a barrier", "a barrier", "an update")
    assert mend(RACE, read, both) == "a barrier"  # of two lines
    assert mend(read, replace(both, memory=1)) == "a barrier"
