"""What commands write with `--json` is what docs/schemas says."""

from __future__ import annotations

import json

import jsonschema
import pytest

from tools.schemas import COMMANDS, FOLDER, LONG, loosened, records, schema_of

SLOW = {*LONG, "check", "bench"}


def test_every_command_that_writes_json_has_a_schema():
    assert {path.stem for path in FOLDER.glob("*.json")} == set(COMMANDS)


@pytest.mark.parametrize("command", [pytest.param(e, marks=[pytest.mark.long] * (e in SLOW)) for e in COMMANDS])
def test_records_have_the_shape_that_is_published(command):
    schema = json.loads((FOLDER / f"{command}.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    for record in records(command):
        jsonschema.validate(record, schema)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({key: value for key, value in record.items() if key != "schema_version"}, schema)


def test_a_schema_knows_what_is_required_and_what_may_be_null():
    schema = loosened(schema_of([{"a": 1, "b": None, "sizes": {"n": 1}}, {"a": 1.5, "sizes": {}}]))
    assert schema["required"] == ["a", "sizes"]
    jsonschema.validate({"a": None, "sizes": {"m": 3}}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"a": "text", "sizes": {}}, schema)
