"""SEPA's Python client, unchanged, against the smart space."""

import os
import queue
import sys
import traceback

from sepy.SEPA import SEPA

# Two ports, as SEPA has 8000 and 9000.
HTTP, WS = (f"127.0.0.1:{os.environ[name]}" for name in ("BROKER_SEPA_HTTP", "BROKER_SEPA_WS"))
QUERY, UPDATE, SUBSCRIBE = f"http://{HTTP}/query", f"http://{HTTP}/update", f"ws://{WS}/subscribe"
PATIENCE = 20


def values(bindings):
    return sorted(binding["o"]["value"] for binding in bindings)


def an_update_is_seen_by_a_query():
    client = SEPA()
    client.sparql_update("INSERT DATA { <urn:a> <urn:b> 'x' }", host=UPDATE)
    answer = client.sparql_query("SELECT ?o { <urn:a> <urn:b> ?o }", host=QUERY)
    assert values(answer["results"]["bindings"]) == ["x"], answer


def what_makes_no_sense_is_an_error():
    try:
        SEPA().sparql_update("INSERT", host=UPDATE)
    except ValueError:
        return
    raise AssertionError("no error")


def changes_are_told_until_the_end():
    client, told = SEPA(), queue.Queue()
    handler = lambda added, removed: told.put((values(added), values(removed)))
    name = client.sparql_subscribe("SELECT ?o { <urn:lamp> <urn:state> ?o }", "lamp", handler, host=SUBSCRIBE)
    assert told.get(timeout=PATIENCE) == ([], [])
    client.sparql_update("INSERT DATA { <urn:lamp> <urn:state> 'on' }", host=UPDATE)
    assert told.get(timeout=PATIENCE) == (["on"], [])
    change = "DELETE { <urn:lamp> <urn:state> ?o } INSERT { <urn:lamp> <urn:state> 'off' } WHERE { <urn:lamp> <urn:state> ?o }"
    client.sparql_update(change, host=UPDATE)
    assert told.get(timeout=PATIENCE) == (["off"], ["on"])
    client.unsubscribe(name)


def run(scenario):
    try:
        scenario()
    except BaseException:
        print(f"FAILED {scenario.__name__}\n{traceback.format_exc()}", flush=True)
        return False
    print(f"ok {scenario.__name__}", flush=True)
    return True


results = [run(it) for it in (an_update_is_seen_by_a_query, what_makes_no_sense_is_an_error, changes_are_told_until_the_end)]
sys.stdout.flush()
os._exit(0 if all(results) else 1)
