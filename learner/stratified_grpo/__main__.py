"""``python -m stratified_grpo`` is the command ``stratified-grpo``."""

import sys

from stratified_grpo.cli import main

if __name__ == "__main__":
    sys.exit(main())
