"""What a round of chaos_job.py does, drawn by chance."""

import dataclasses

import tiers

RANKS = 4


@dataclasses.dataclass
class Round:
    layout: tiers.Layout
    funneled: bool
    files: int
    leaders: int
    cap_mib: int
    shared_every: int  # 3: most epochs stay on the nodes
    agent: bool  # starts one if none lives
    agent_cap: str
    carries: bool  # the agent, if one is started, while the program lives
    aim: str  # instant, start, rebuild, restore, capture, protection, flush, drain
    victim: str  # program, agent, both, node
    way: str  # how a program dies: all, one, launcher
    lost: list  # nodes whose tiers are lost besides
    after: str  # restart, agent, drain
    extra_s: float  # how long after its restore it waits for its aim
    linger_s: float  # how long ranks live beside dead ones


def draw_layout(chance):
    redundancy = chance.choice(["none", "none", "partner", "xor", "rs:2"])
    return tiers.Layout(RANKS, chance.choice([1, 1, 1, 1, 2, 3]), redundancy)


def draw_aim(chance, layout):
    aims = ["start", "capture"] + ["instant", "restore", "flush", "drain"] * 2
    aims += [] if layout.redundancy == "none" else ["protection"] * 2
    return chance.choice(aims)


def draw_lost(chance, nodes):
    if chance.random() >= 0.12:
        return []
    return sorted(chance.sample(range(nodes), min(chance.choice([1, 1, 2, nodes]), nodes)))


def draw(chance, agents):
    layout = draw_layout(chance)
    agent = agents == "always" or (agents == "drawn" and chance.random() < 0.7)
    aim = draw_aim(chance, layout)
    victims = ["program", "program", "node", "node"] + (["agent", "both"] if agent else [])
    finisher = "agent" if agent else "drain"
    return Round(
        layout=layout,
        funneled=chance.random() < 0.15,
        files=chance.choice([1, 1, 2, 3, 6]),
        leaders=chance.choice([1, 1, 2]),
        cap_mib=chance.choice([4, 8, 16, 40] if layout.redundancy == "none" else [8, 16, 40]),
        shared_every=chance.choice([1, 1, 3]),
        agent=agent,
        agent_cap=chance.choice(["0", "0", "0", "8MiB"]),
        carries=agent and chance.random() < 0.3,
        aim=aim,
        victim=chance.choice(victims),
        way=chance.choice(["all", "all", "one", "launcher"]),
        lost=draw_lost(chance, layout.nodes()),
        after=finisher if aim == "drain" else chance.choice(["restart", finisher]),
        extra_s=chance.choice([0, chance.uniform(0, 0.6), chance.uniform(0, 1.2)]),
        linger_s=chance.choice([0, chance.uniform(0, 0.15)]),
    )
