from __future__ import annotations

from noyau.jobs.bench.baseline.sources import baseline_path


def test_a_name_is_a_file_of_the_folder_of_baselines_and_a_path_is_one():
    assert str(baseline_path("main")) == ".noyau/bench/main.json"
    assert str(baseline_path("a/b")) == "a/b" and str(baseline_path("x.json")) == "x.json"
