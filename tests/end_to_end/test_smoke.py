from tests.desk import Desk, reserve, look_up


async def test_smoke(desk: Desk) -> None:
    desk.will_say(reserve(), "Reserved.")
    await desk.arm("drop_reply_after_commit")
    result = await desk.run({"goal": "reserve 2 of A1 for order 1001", "acceptance": [{"check":"operation","tool":"reserve_stock","arguments":{"order":"1001","sku":"A1","quantity":2}}]})
    print(result.model_dump_json(indent=1))
    print(await desk.journal(result.operations[0]))
    print(await desk.effects(), desk.model.refusals)
    assert False
