"""In: plain values, pixels and stored JSON.
Out: checked, immutable records, and JSON that reads back as the same record.
Does not know how a record is made or used: no browser, no model, no bank, no network.
"""

from focusmem.schemas.action import (
    ACTION_NAMES,
    Action,
    Click,
    Goto,
    PressKey,
    Scroll,
    Stop,
    Type,
    Wait,
    action_schema_text,
    action_to_json,
    make_action,
    parse_action,
)
from focusmem.schemas.episode import AttentionMap, Conditions, Episode, OfferedItem, StepNotes
from focusmem.schemas.evidence import EvidenceItem, Role
from focusmem.schemas.hit import Hit
from focusmem.schemas.left_out import LeftOut
from focusmem.schemas.observation import ControlInfo, Observation
from focusmem.schemas.prompt import Instruction, Prompt, Turn, TurnRole
from focusmem.schemas.record import Record, dump_record, parse_record
from focusmem.schemas.run import Environment, Run
from focusmem.schemas.run_folder import (
    FrozenSubset,
    Manifest,
    ManifestTask,
    Preparation,
    RunFolder,
    StoredEpisode,
    is_run,
    read_episode,
    run_name,
)
from focusmem.schemas.screenshot import Screenshot, ScreenshotRef
from focusmem.schemas.task import Task
from focusmem.schemas.trajectory import Annotations, Closing, Step, Trajectory
from focusmem.schemas.trajectory_folder import (
    StoredScreenshots,
    StoredTrajectory,
    check_screenshots,
    check_trajectory,
    content_digest,
    find_trajectories,
    is_intact,
    load_trajectory,
    save_trajectory,
)
from focusmem.schemas.verdict import Consultation, JudgeCost, JudgeReply, Outcome, StrictReading, Verdict

__all__ = [
    "ACTION_NAMES",
    "Action",
    "Annotations",
    "AttentionMap",
    "Click",
    "Closing",
    "Conditions",
    "Consultation",
    "ControlInfo",
    "Environment",
    "Episode",
    "EvidenceItem",
    "FrozenSubset",
    "Goto",
    "Hit",
    "Instruction",
    "JudgeCost",
    "JudgeReply",
    "LeftOut",
    "Manifest",
    "ManifestTask",
    "Observation",
    "OfferedItem",
    "Outcome",
    "Preparation",
    "PressKey",
    "Prompt",
    "Record",
    "Role",
    "Run",
    "RunFolder",
    "Screenshot",
    "ScreenshotRef",
    "Scroll",
    "Step",
    "StepNotes",
    "Stop",
    "StoredEpisode",
    "StoredScreenshots",
    "StoredTrajectory",
    "StrictReading",
    "Task",
    "Trajectory",
    "Turn",
    "TurnRole",
    "Type",
    "Verdict",
    "Wait",
    "action_schema_text",
    "action_to_json",
    "check_screenshots",
    "check_trajectory",
    "content_digest",
    "dump_record",
    "find_trajectories",
    "is_intact",
    "is_run",
    "load_trajectory",
    "make_action",
    "parse_action",
    "parse_record",
    "read_episode",
    "run_name",
    "save_trajectory",
]
