"""SearchQA-v0: a Gymnasium environment in which an agent searches a corpus, then answers.

Importing this package registers the environment and nothing more: no index, no network, no torch.
"""

from __future__ import annotations

from searchqa.registration import ENV_ID, register_envs

__version__ = "0.1.0"
__all__ = ["ENV_ID", "__version__", "register_envs"]

register_envs()
