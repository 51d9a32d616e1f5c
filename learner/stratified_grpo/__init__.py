"""Stratified GRPO for LLM search agents: estimator, learner and command line.

Importing this package imports nothing else; `stratified_grpo.advantages` needs numpy only.
"""
