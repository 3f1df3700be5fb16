from __future__ import annotations

import sys
from pathlib import Path

# `import documents`, `import processes` in every import mode
sys.path.insert(0, str(Path(__file__).parent))
