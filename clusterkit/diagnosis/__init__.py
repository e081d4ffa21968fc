"""Why a run failed: rules with patterns, meaning and cure, held against what the run left behind. Pure."""
