"""Scenarios with aiocoap. Prints a line per scenario; ends with code 1 if one fails."""

import asyncio
import os
import sys
import traceback

import aiocoap
from aiocoap import CHANGED, CONTENT, CREATED, DELETED, GET, NON, NOT_FOUND, PUT, TOO_MANY_REQUESTS, Message
from aiocoap.numbers.codes import DELETE, SERVICE_UNAVAILABLE

BASE = f"coap://127.0.0.1:{os.environ['BROKER_COAP']}"


async def ask(context, code, path, payload=b"", **more):
    request = Message(code=code, uri=f"{BASE}/{path}", payload=payload, **more)
    return await asyncio.wait_for(context.request(request).response, 20)


def expect(found, wanted):
    assert found == wanted, f"{found!r} is not {wanted!r}"


async def a_state_is_put_read_and_deleted(context):
    expect((await ask(context, PUT, "ps/py/t", b"1")).code, CREATED)
    expect((await ask(context, PUT, "ps/py/t", b"2")).code, CHANGED)
    answer = await ask(context, GET, "ps/py/t")
    expect((answer.code, answer.payload), (CONTENT, b"2"))
    expect((await ask(context, DELETE, "ps/py/t")).code, DELETED)
    expect((await ask(context, GET, "ps/py/t")).code, NOT_FOUND)


async def an_unconfirmed_request_is_answered_too(context):
    expect((await ask(context, PUT, "ps/py/non", b"1", mtype=NON)).code, CREATED)
    expect((await ask(context, GET, "ps/py/non")).payload, b"1")


async def large_states_go_in_blocks(context):
    large = bytes(number % 251 for number in range(20_000))
    expect((await ask(context, PUT, "ps/py/large", large)).code, CREATED)
    expect((await ask(context, GET, "ps/py/large")).payload, large)


async def changes_are_observed_and_the_last_one_is_seen(context):
    await ask(context, PUT, "ps/py/o", b"0")
    request = context.request(Message(code=GET, uri=f"{BASE}/ps/py/o", observe=0))
    first = await asyncio.wait_for(request.response, 20)
    expect(first.payload, b"0")
    seen = asyncio.Queue()
    request.observation.register_callback(lambda message: seen.put_nowait(message.payload))
    for number in range(1, 30):
        await ask(context, PUT, "ps/py/o", b"%d" % number)
    last = b""
    while last != b"29":
        last = await asyncio.wait_for(seen.get(), 20)
    request.observation.cancel()


async def what_there_is_can_be_found_out(context):
    answer = await ask(context, GET, ".well-known/core")
    assert b"</ps>" in answer.payload, answer.payload


async def an_unknown_place_is_not_found(context):
    expect((await ask(context, GET, "elsewhere")).code, NOT_FOUND)


async def an_obedient_client_loses_nothing(context):
    """As fast as answers come, and no sooner than it is told to come back."""
    refused = 0
    for number in range(400):
        while True:
            answer = await ask(context, PUT, "ps/py/obedient", b"%d" % number)
            if answer.code not in (TOO_MANY_REQUESTS, SERVICE_UNAVAILABLE):
                break
            refused += 1
            assert refused < 50, "it is refused for ever"
            await asyncio.sleep(answer.opt.max_age)
        assert answer.code in (CREATED, CHANGED), answer.code
    expect((await ask(context, GET, "ps/py/obedient")).payload, b"399")


async def main():
    scenarios = [
        a_state_is_put_read_and_deleted,
        an_unconfirmed_request_is_answered_too,
        large_states_go_in_blocks,
        changes_are_observed_and_the_last_one_is_seen,
        what_there_is_can_be_found_out,
        an_unknown_place_is_not_found,
        an_obedient_client_loses_nothing,
    ]
    failed = False
    for scenario in scenarios:
        context = await aiocoap.Context.create_client_context()
        try:
            await scenario(context)
            print("ok", scenario.__name__, flush=True)
        except Exception:
            failed = True
            print("failed", scenario.__name__)
            traceback.print_exc()
        await context.shutdown()
    sys.exit(1 if failed else 0)


asyncio.run(main())
