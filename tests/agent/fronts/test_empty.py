from agent.decisions import make_decision, make_search
from focusmem.agent.fronts.base import Fronted
from focusmem.agent.fronts.empty import EmptyFront
from focusmem.schemas import Turn


def test_the_prompt_stands_alone_whatever_was_found():
    prompts = [(Turn("user", (f"Decide {number}.",)),) for number in range(2)]
    decisions = [make_decision(0, num_steps=9), make_decision(1)]
    placed = EmptyFront().place(prompts, decisions, [make_search(1), make_search()])
    assert placed == [Fronted(prompts[0], "task-0 1 0"), Fronted(prompts[1], "task-1 1 0")]
    assert (placed[0].turns, placed[0].row, placed[0].num_memory_tokens, placed[0].offered) == ((), None, 0, ())
