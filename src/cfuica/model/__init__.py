"""The network of the paper: two sides (UUC and IIC), their layers, the conditional, calibration."""
