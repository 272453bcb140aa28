"""Why a prediction is what it is, and which users or items are alike."""
