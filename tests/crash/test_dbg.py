from tests.crash.test_kill import *
async def test_x(empty_desk: Desk, crew: Crew) -> None:
    desk = empty_desk
    desk.will_say(reserve(), "Reserved.")
    worker = await crew.hire(trap=Point.AFTER_STORE, act=Act.KILL)
    handle = await desk.start(TASK)
    await worker.process.wait()
    async with another_worker(desk):
        result = await result_of(handle)
    async for e in handle.fetch_history_events():
        print(e.event_id, e.event_time.ToDatetime().time(), e.event_type, e.activity_task_scheduled_event_attributes.activity_type.name, e.activity_task_scheduled_event_attributes.start_to_close_timeout.ToTimedelta())
    print(worker.log.read_text())
    assert False
