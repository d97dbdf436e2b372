import time
from tests.crash.test_reset import *
from tests.crash.test_model_request import *
from tests.crash.operator import *
from settled.workflows.contract.names import settlement_id
from tests.crash.outcomes import *
from temporalio.api.enums.v1 import EventType
async def dump(desk, wid):
    h = desk.client.get_workflow_handle(wid)
    async for e in h.fetch_history_events():
        print(e.event_id, e.event_time.ToDatetime().time(), EventType.Name(e.event_type)[11:], e.activity_task_scheduled_event_attributes.activity_type.name, e.activity_task_started_event_attributes.identity, e.activity_task_started_event_attributes.attempt, e.timer_started_event_attributes.start_to_fire_timeout.ToTimedelta())
async def test_x(patient_desk: Desk) -> None:
    desk = patient_desk
    t=time.time()
    desk.will_say(reserve(), "Reserved.")
    await desk.arm("hold_reply_after_commit")
    handle = await desk.start(TASK)
    await until_asked_to_reserve(desk)
    again = await reset(desk, handle, to_before=DISPATCH)
    await until_it_waits(desk, handle.id)
    print("waits", time.time()-t)
    await disarm(desk)
    result = await result_of(again)
    print("end", time.time()-t)
    await dump(desk, handle.id)
    for r in await desk.parts.stores.ledger.journal(result.operations[0].key): print(r.event, r.at)
    assert False
async def test_y(empty_desk: Desk, crew: Crew) -> None:
    t=time.time()
    desk = empty_desk
    desk.will_say(reserve(), "Reserved.")
    worker = await crew.hire(trap=Point.AFTER_RESPONSE, act=Act.KILL)
    print("hired", time.time()-t)
    handle = await desk.start(TASK)
    await worker.ends()
    print("killed", time.time()-t)
    await time_out_soon(desk, handle, activity=REQUEST_MODEL, seconds=1.0)
    async with another_worker(desk):
        result = await result_of(handle)
        print("end", time.time()-t)
    print("end", time.time()-t)
    await dump(desk, handle.id)
    assert False
