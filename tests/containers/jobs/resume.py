"""Rank by rank: the first attempt saves that it was there and waits, the next one finds what was saved."""

import os
import time
from pathlib import Path

rank, attempt = os.environ["PADDLE_TRAINER_ID"], int(os.environ["CLUSTERKIT_ATTEMPT"])
saved = Path(os.environ["CLUSTERKIT_CHECKPOINT_DIR"]) / f"rank-{rank}"
if attempt == 0:
    saved.write_text("step 5")
    print(f"rank {rank} saved", flush=True)
    time.sleep(300)
print(f"rank {rank} attempt {attempt} resumes from {saved.read_text()}", flush=True)
