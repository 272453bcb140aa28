"""The paper's equations: sides, the conditional, likelihoods."""
