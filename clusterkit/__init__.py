"""clusterkit turns a list of GPU machines you can ssh to into one PaddlePaddle training job."""

__version__ = "0.1.0"
