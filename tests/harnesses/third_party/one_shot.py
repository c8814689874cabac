"""one-shot asks the model once and writes its answer to answer.txt."""

from pathlib import Path

from mixharness.harnesses import Abilities, Harness, HarnessEnd, Launch, LaunchContext
from mixharness.sandboxes.base import Check, ExecResult, Mount

PROGRAM = Path(__file__).with_name("one_shot_program.py")
TARGET = "/opt/one-shot/program.py"


class OneShot(Harness):
    name = "one-shot"
    version = "1.0"
    dialect = "chat"
    abilities = Abilities()
    memory_mb = 256

    def install(self) -> None:
        """Nothing to do: the program comes with the package."""

    def check(self) -> Check:
        return Check(self.name, PROGRAM.is_file(), str(PROGRAM), "pip install one-shot")

    def mounts(self) -> tuple[Mount, ...]:
        return (Mount(PROGRAM, TARGET),)

    def launch(self, context: LaunchContext, profile: str = "default") -> Launch:
        self.require_profile(profile)
        env = {"URL": f"{context.base_url}/v1/chat/completions", "KEY": context.api_key, "MODEL": context.model}
        return Launch(["python3", TARGET], env, stdin=context.prompt.encode())

    def read_end(self, result: ExecResult) -> HarnessEnd:
        if result.exit_code != 0:
            return HarnessEnd("error", detail=result.stderr[-2000:])
        return HarnessEnd("completed", result.stdout)
