#!/usr/bin/env python3
"""Measures settings of Horovod against each other, on the cluster at hand.

    python confirm.py -np 8 -H node1:4,node2:4 > confirm.csv
    python confirm.py --launcher "srun --ntasks=8 --mpi=pmix" > confirm.csv
    python confirm.py -np 8 --dry-run

Each block starts a process group of its own for every setting, in random order. Its ranks replay
training steps: forward, backward and optimizer pass as time, and each of the model's gradients is
reduced once it is ready. A row is the median over steps of the slowest rank's step time.

It needs Horovod with PyTorch, and must lie where all nodes see it under the same path.
"""

import argparse
import csv
import json
import os
import random
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time

WORKLOAD = "densenet121"
BLOCKS = 8
FORWARD_MS = 50.0
BACKWARD_MS = 100.0
OPTIMIZER_MS = 0.0
SETTINGS = [  # label, environment variables
    ["recommended",{"HOROVOD_FUSION_THRESHOLD":"1048576","HOROVOD_CYCLE_TIME":"0.1","HOROVOD_CACHE_CAPACITY":"1024"}],
    ["128 MiB, 1 ms, cache on",{"HOROVOD_FUSION_THRESHOLD":"134217728","HOROVOD_CYCLE_TIME":"1","HOROVOD_CACHE_CAPACITY":"1024"}],
    ["64 MiB, 5 ms, cache on",{"HOROVOD_FUSION_THRESHOLD":"67108864","HOROVOD_CYCLE_TIME":"5","HOROVOD_CACHE_CAPACITY":"1024"}],
]
GRADIENTS = [  # name, dimensions, share of the backward pass when it is ready
    ["classifier.bias",[1000],0.000369],
    ["classifier.weight",[1000,1024],0.000369],
    ["features.norm5.weight",[1024],0.000369],
    ["features.norm5.bias",[1024],0.000369],
    ["features.denseblock4.denselayer16.conv2.weight",[32,128,3,3],0.00102],
    ["features.denseblock4.denselayer16.norm2.weight",[128],0.00102],
    ["features.denseblock4.denselayer16.norm2.bias",[128],0.00102],
    ["features.denseblock4.denselayer16.conv1.weight",[128,992,1,1],0.003262],
    ["features.denseblock4.denselayer16.norm1.weight",[992],0.003262],
    ["features.denseblock4.denselayer16.norm1.bias",[992],0.003262],
    ["features.denseblock4.denselayer15.conv2.weight",[32,128,3,3],0.003913],
    ["features.denseblock4.denselayer15.norm2.weight",[128],0.003913],
    ["features.denseblock4.denselayer15.norm2.bias",[128],0.003913],
    ["features.denseblock4.denselayer15.conv1.weight",[128,960,1,1],0.006082],
    ["features.denseblock4.denselayer15.norm1.weight",[960],0.006082],
    ["features.denseblock4.denselayer15.norm1.bias",[960],0.006082],
    ["features.denseblock4.denselayer14.conv2.weight",[32,128,3,3],0.006733],
    ["features.denseblock4.denselayer14.norm2.weight",[128],0.006733],
    ["features.denseblock4.denselayer14.norm2.bias",[128],0.006733],
    ["features.denseblock4.denselayer14.conv1.weight",[128,928,1,1],0.008831],
    ["features.denseblock4.denselayer14.norm1.weight",[928],0.008831],
    ["features.denseblock4.denselayer14.norm1.bias",[928],0.008831],
    ["features.denseblock4.denselayer13.conv2.weight",[32,128,3,3],0.009482],
    ["features.denseblock4.denselayer13.norm2.weight",[128],0.009482],
    ["features.denseblock4.denselayer13.norm2.bias",[128],0.009482],
    ["features.denseblock4.denselayer13.conv1.weight",[128,896,1,1],0.011507],
    ["features.denseblock4.denselayer13.norm1.weight",[896],0.011507],
    ["features.denseblock4.denselayer13.norm1.bias",[896],0.011507],
    ["features.denseblock4.denselayer12.conv2.weight",[32,128,3,3],0.012157],
    ["features.denseblock4.denselayer12.norm2.weight",[128],0.012157],
    ["features.denseblock4.denselayer12.norm2.bias",[128],0.012157],
    ["features.denseblock4.denselayer12.conv1.weight",[128,864,1,1],0.01411],
    ["features.denseblock4.denselayer12.norm1.weight",[864],0.01411],
    ["features.denseblock4.denselayer12.norm1.bias",[864],0.01411],
    ["features.denseblock4.denselayer11.conv2.weight",[32,128,3,3],0.014761],
    ["features.denseblock4.denselayer11.norm2.weight",[128],0.014761],
    ["features.denseblock4.denselayer11.norm2.bias",[128],0.014761],
    ["features.denseblock4.denselayer11.conv1.weight",[128,832,1,1],0.016641],
    ["features.denseblock4.denselayer11.norm1.weight",[832],0.016641],
    ["features.denseblock4.denselayer11.norm1.bias",[832],0.016641],
    ["features.denseblock4.denselayer10.conv2.weight",[32,128,3,3],0.017292],
    ["features.denseblock4.denselayer10.norm2.weight",[128],0.017292],
    ["features.denseblock4.denselayer10.norm2.bias",[128],0.017292],
    ["features.denseblock4.denselayer10.conv1.weight",[128,800,1,1],0.0191],
    ["features.denseblock4.denselayer10.norm1.weight",[800],0.0191],
    ["features.denseblock4.denselayer10.norm1.bias",[800],0.0191],
    ["features.denseblock4.denselayer9.conv2.weight",[32,128,3,3],0.019751],
    ["features.denseblock4.denselayer9.norm2.weight",[128],0.019751],
    ["features.denseblock4.denselayer9.norm2.bias",[128],0.019751],
    ["features.denseblock4.denselayer9.conv1.weight",[128,768,1,1],0.021487],
    ["features.denseblock4.denselayer9.norm1.weight",[768],0.021487],
    ["features.denseblock4.denselayer9.norm1.bias",[768],0.021487],
    ["features.denseblock4.denselayer8.conv2.weight",[32,128,3,3],0.022138],
    ["features.denseblock4.denselayer8.norm2.weight",[128],0.022138],
    ["features.denseblock4.denselayer8.norm2.bias",[128],0.022138],
    ["features.denseblock4.denselayer8.conv1.weight",[128,736,1,1],0.023801],
    ["features.denseblock4.denselayer8.norm1.weight",[736],0.023801],
    ["features.denseblock4.denselayer8.norm1.bias",[736],0.023801],
    ["features.denseblock4.denselayer7.conv2.weight",[32,128,3,3],0.024452],
    ["features.denseblock4.denselayer7.norm2.weight",[128],0.024452],
    ["features.denseblock4.denselayer7.norm2.bias",[128],0.024452],
    ["features.denseblock4.denselayer7.conv1.weight",[128,704,1,1],0.026043],
    ["features.denseblock4.denselayer7.norm1.weight",[704],0.026043],
    ["features.denseblock4.denselayer7.norm1.bias",[704],0.026043],
    ["features.denseblock4.denselayer6.conv2.weight",[32,128,3,3],0.026694],
    ["features.denseblock4.denselayer6.norm2.weight",[128],0.026694],
    ["features.denseblock4.denselayer6.norm2.bias",[128],0.026694],
    ["features.denseblock4.denselayer6.conv1.weight",[128,672,1,1],0.028213],
    ["features.denseblock4.denselayer6.norm1.weight",[672],0.028213],
    ["features.denseblock4.denselayer6.norm1.bias",[672],0.028213],
    ["features.denseblock4.denselayer5.conv2.weight",[32,128,3,3],0.028864],
    ["features.denseblock4.denselayer5.norm2.weight",[128],0.028864],
    ["features.denseblock4.denselayer5.norm2.bias",[128],0.028864],
    ["features.denseblock4.denselayer5.conv1.weight",[128,640,1,1],0.03031],
    ["features.denseblock4.denselayer5.norm1.weight",[640],0.03031],
    ["features.denseblock4.denselayer5.norm1.bias",[640],0.03031],
    ["features.denseblock4.denselayer4.conv2.weight",[32,128,3,3],0.030961],
    ["features.denseblock4.denselayer4.norm2.weight",[128],0.030961],
    ["features.denseblock4.denselayer4.norm2.bias",[128],0.030961],
    ["features.denseblock4.denselayer4.conv1.weight",[128,608,1,1],0.032335],
    ["features.denseblock4.denselayer4.norm1.weight",[608],0.032335],
    ["features.denseblock4.denselayer4.norm1.bias",[608],0.032335],
    ["features.denseblock4.denselayer3.conv2.weight",[32,128,3,3],0.032986],
    ["features.denseblock4.denselayer3.norm2.weight",[128],0.032986],
    ["features.denseblock4.denselayer3.norm2.bias",[128],0.032986],
    ["features.denseblock4.denselayer3.conv1.weight",[128,576,1,1],0.034288],
    ["features.denseblock4.denselayer3.norm1.weight",[576],0.034288],
    ["features.denseblock4.denselayer3.norm1.bias",[576],0.034288],
    ["features.denseblock4.denselayer2.conv2.weight",[32,128,3,3],0.034939],
    ["features.denseblock4.denselayer2.norm2.weight",[128],0.034939],
    ["features.denseblock4.denselayer2.norm2.bias",[128],0.034939],
    ["features.denseblock4.denselayer2.conv1.weight",[128,544,1,1],0.036168],
    ["features.denseblock4.denselayer2.norm1.weight",[544],0.036168],
    ["features.denseblock4.denselayer2.norm1.bias",[544],0.036168],
    ["features.denseblock4.denselayer1.conv2.weight",[32,128,3,3],0.036819],
    ["features.denseblock4.denselayer1.norm2.weight",[128],0.036819],
    ["features.denseblock4.denselayer1.norm2.bias",[128],0.036819],
    ["features.denseblock4.denselayer1.conv1.weight",[128,512,1,1],0.037976],
    ["features.denseblock4.denselayer1.norm1.weight",[512],0.037976],
    ["features.denseblock4.denselayer1.norm1.bias",[512],0.037976],
    ["features.transition3.conv.weight",[512,1024,1,1],0.075005],
    ["features.transition3.norm.weight",[1024],0.075005],
    ["features.transition3.norm.bias",[1024],0.075005],
    ["features.denseblock3.denselayer24.conv2.weight",[32,128,3,3],0.077609],
    ["features.denseblock3.denselayer24.norm2.weight",[128],0.077609],
    ["features.denseblock3.denselayer24.norm2.bias",[128],0.077609],
    ["features.denseblock3.denselayer24.conv1.weight",[128,992,1,1],0.086576],
    ["features.denseblock3.denselayer24.norm1.weight",[992],0.086576],
    ["features.denseblock3.denselayer24.norm1.bias",[992],0.086576],
    ["features.denseblock3.denselayer23.conv2.weight",[32,128,3,3],0.08918],
    ["features.denseblock3.denselayer23.norm2.weight",[128],0.08918],
    ["features.denseblock3.denselayer23.norm2.bias",[128],0.08918],
    ["features.denseblock3.denselayer23.conv1.weight",[128,960,1,1],0.097859],
    ["features.denseblock3.denselayer23.norm1.weight",[960],0.097859],
    ["features.denseblock3.denselayer23.norm1.bias",[960],0.097859],
    ["features.denseblock3.denselayer22.conv2.weight",[32,128,3,3],0.100462],
    ["features.denseblock3.denselayer22.norm2.weight",[128],0.100462],
    ["features.denseblock3.denselayer22.norm2.bias",[128],0.100462],
    ["features.denseblock3.denselayer22.conv1.weight",[128,928,1,1],0.108852],
    ["features.denseblock3.denselayer22.norm1.weight",[928],0.108852],
    ["features.denseblock3.denselayer22.norm1.bias",[928],0.108852],
    ["features.denseblock3.denselayer21.conv2.weight",[32,128,3,3],0.111455],
    ["features.denseblock3.denselayer21.norm2.weight",[128],0.111455],
    ["features.denseblock3.denselayer21.norm2.bias",[128],0.111455],
    ["features.denseblock3.denselayer21.conv1.weight",[128,896,1,1],0.119555],
    ["features.denseblock3.denselayer21.norm1.weight",[896],0.119555],
    ["features.denseblock3.denselayer21.norm1.bias",[896],0.119555],
    ["features.denseblock3.denselayer20.conv2.weight",[32,128,3,3],0.122159],
    ["features.denseblock3.denselayer20.norm2.weight",[128],0.122159],
    ["features.denseblock3.denselayer20.norm2.bias",[128],0.122159],
    ["features.denseblock3.denselayer20.conv1.weight",[128,864,1,1],0.12997],
    ["features.denseblock3.denselayer20.norm1.weight",[864],0.12997],
    ["features.denseblock3.denselayer20.norm1.bias",[864],0.12997],
    ["features.denseblock3.denselayer19.conv2.weight",[32,128,3,3],0.132573],
    ["features.denseblock3.denselayer19.norm2.weight",[128],0.132573],
    ["features.denseblock3.denselayer19.norm2.bias",[128],0.132573],
    ["features.denseblock3.denselayer19.conv1.weight",[128,832,1,1],0.140095],
    ["features.denseblock3.denselayer19.norm1.weight",[832],0.140095],
    ["features.denseblock3.denselayer19.norm1.bias",[832],0.140095],
    ["features.denseblock3.denselayer18.conv2.weight",[32,128,3,3],0.142698],
    ["features.denseblock3.denselayer18.norm2.weight",[128],0.142698],
    ["features.denseblock3.denselayer18.norm2.bias",[128],0.142698],
    ["features.denseblock3.denselayer18.conv1.weight",[128,800,1,1],0.14993],
    ["features.denseblock3.denselayer18.norm1.weight",[800],0.14993],
    ["features.denseblock3.denselayer18.norm1.bias",[800],0.14993],
    ["features.denseblock3.denselayer17.conv2.weight",[32,128,3,3],0.152534],
    ["features.denseblock3.denselayer17.norm2.weight",[128],0.152534],
    ["features.denseblock3.denselayer17.norm2.bias",[128],0.152534],
    ["features.denseblock3.denselayer17.conv1.weight",[128,768,1,1],0.159477],
    ["features.denseblock3.denselayer17.norm1.weight",[768],0.159477],
    ["features.denseblock3.denselayer17.norm1.bias",[768],0.159477],
    ["features.denseblock3.denselayer16.conv2.weight",[32,128,3,3],0.16208],
    ["features.denseblock3.denselayer16.norm2.weight",[128],0.16208],
    ["features.denseblock3.denselayer16.norm2.bias",[128],0.16208],
    ["features.denseblock3.denselayer16.conv1.weight",[128,736,1,1],0.168734],
    ["features.denseblock3.denselayer16.norm1.weight",[736],0.168734],
    ["features.denseblock3.denselayer16.norm1.bias",[736],0.168734],
    ["features.denseblock3.denselayer15.conv2.weight",[32,128,3,3],0.171338],
    ["features.denseblock3.denselayer15.norm2.weight",[128],0.171338],
    ["features.denseblock3.denselayer15.norm2.bias",[128],0.171338],
    ["features.denseblock3.denselayer15.conv1.weight",[128,704,1,1],0.177702],
    ["features.denseblock3.denselayer15.norm1.weight",[704],0.177702],
    ["features.denseblock3.denselayer15.norm1.bias",[704],0.177702],
    ["features.denseblock3.denselayer14.conv2.weight",[32,128,3,3],0.180305],
    ["features.denseblock3.denselayer14.norm2.weight",[128],0.180305],
    ["features.denseblock3.denselayer14.norm2.bias",[128],0.180305],
    ["features.denseblock3.denselayer14.conv1.weight",[128,672,1,1],0.18638],
    ["features.denseblock3.denselayer14.norm1.weight",[672],0.18638],
    ["features.denseblock3.denselayer14.norm1.bias",[672],0.18638],
    ["features.denseblock3.denselayer13.conv2.weight",[32,128,3,3],0.188984],
    ["features.denseblock3.denselayer13.norm2.weight",[128],0.188984],
    ["features.denseblock3.denselayer13.norm2.bias",[128],0.188984],
    ["features.denseblock3.denselayer13.conv1.weight",[128,640,1,1],0.19477],
    ["features.denseblock3.denselayer13.norm1.weight",[640],0.19477],
    ["features.denseblock3.denselayer13.norm1.bias",[640],0.19477],
    ["features.denseblock3.denselayer12.conv2.weight",[32,128,3,3],0.197373],
    ["features.denseblock3.denselayer12.norm2.weight",[128],0.197373],
    ["features.denseblock3.denselayer12.norm2.bias",[128],0.197373],
    ["features.denseblock3.denselayer12.conv1.weight",[128,608,1,1],0.20287],
    ["features.denseblock3.denselayer12.norm1.weight",[608],0.20287],
    ["features.denseblock3.denselayer12.norm1.bias",[608],0.20287],
    ["features.denseblock3.denselayer11.conv2.weight",[32,128,3,3],0.205473],
    ["features.denseblock3.denselayer11.norm2.weight",[128],0.205473],
    ["features.denseblock3.denselayer11.norm2.bias",[128],0.205473],
    ["features.denseblock3.denselayer11.conv1.weight",[128,576,1,1],0.210681],
    ["features.denseblock3.denselayer11.norm1.weight",[576],0.210681],
    ["features.denseblock3.denselayer11.norm1.bias",[576],0.210681],
    ["features.denseblock3.denselayer10.conv2.weight",[32,128,3,3],0.213284],
    ["features.denseblock3.denselayer10.norm2.weight",[128],0.213284],
    ["features.denseblock3.denselayer10.norm2.bias",[128],0.213284],
    ["features.denseblock3.denselayer10.conv1.weight",[128,544,1,1],0.218202],
    ["features.denseblock3.denselayer10.norm1.weight",[544],0.218202],
    ["features.denseblock3.denselayer10.norm1.bias",[544],0.218202],
    ["features.denseblock3.denselayer9.conv2.weight",[32,128,3,3],0.220806],
    ["features.denseblock3.denselayer9.norm2.weight",[128],0.220806],
    ["features.denseblock3.denselayer9.norm2.bias",[128],0.220806],
    ["features.denseblock3.denselayer9.conv1.weight",[128,512,1,1],0.225434],
    ["features.denseblock3.denselayer9.norm1.weight",[512],0.225434],
    ["features.denseblock3.denselayer9.norm1.bias",[512],0.225434],
    ["features.denseblock3.denselayer8.conv2.weight",[32,128,3,3],0.228038],
    ["features.denseblock3.denselayer8.norm2.weight",[128],0.228038],
    ["features.denseblock3.denselayer8.norm2.bias",[128],0.228038],
    ["features.denseblock3.denselayer8.conv1.weight",[128,480,1,1],0.232377],
    ["features.denseblock3.denselayer8.norm1.weight",[480],0.232377],
    ["features.denseblock3.denselayer8.norm1.bias",[480],0.232377],
    ["features.denseblock3.denselayer7.conv2.weight",[32,128,3,3],0.234981],
    ["features.denseblock3.denselayer7.norm2.weight",[128],0.234981],
    ["features.denseblock3.denselayer7.norm2.bias",[128],0.234981],
    ["features.denseblock3.denselayer7.conv1.weight",[128,448,1,1],0.239031],
    ["features.denseblock3.denselayer7.norm1.weight",[448],0.239031],
    ["features.denseblock3.denselayer7.norm1.bias",[448],0.239031],
    ["features.denseblock3.denselayer6.conv2.weight",[32,128,3,3],0.241634],
    ["features.denseblock3.denselayer6.norm2.weight",[128],0.241634],
    ["features.denseblock3.denselayer6.norm2.bias",[128],0.241634],
    ["features.denseblock3.denselayer6.conv1.weight",[128,416,1,1],0.245395],
    ["features.denseblock3.denselayer6.norm1.weight",[416],0.245395],
    ["features.denseblock3.denselayer6.norm1.bias",[416],0.245395],
    ["features.denseblock3.denselayer5.conv2.weight",[32,128,3,3],0.247999],
    ["features.denseblock3.denselayer5.norm2.weight",[128],0.247999],
    ["features.denseblock3.denselayer5.norm2.bias",[128],0.247999],
    ["features.denseblock3.denselayer5.conv1.weight",[128,384,1,1],0.25147],
    ["features.denseblock3.denselayer5.norm1.weight",[384],0.25147],
    ["features.denseblock3.denselayer5.norm1.bias",[384],0.25147],
    ["features.denseblock3.denselayer4.conv2.weight",[32,128,3,3],0.254074],
    ["features.denseblock3.denselayer4.norm2.weight",[128],0.254074],
    ["features.denseblock3.denselayer4.norm2.bias",[128],0.254074],
    ["features.denseblock3.denselayer4.conv1.weight",[128,352,1,1],0.257256],
    ["features.denseblock3.denselayer4.norm1.weight",[352],0.257256],
    ["features.denseblock3.denselayer4.norm1.bias",[352],0.257256],
    ["features.denseblock3.denselayer3.conv2.weight",[32,128,3,3],0.259859],
    ["features.denseblock3.denselayer3.norm2.weight",[128],0.259859],
    ["features.denseblock3.denselayer3.norm2.bias",[128],0.259859],
    ["features.denseblock3.denselayer3.conv1.weight",[128,320,1,1],0.262752],
    ["features.denseblock3.denselayer3.norm1.weight",[320],0.262752],
    ["features.denseblock3.denselayer3.norm1.bias",[320],0.262752],
    ["features.denseblock3.denselayer2.conv2.weight",[32,128,3,3],0.265356],
    ["features.denseblock3.denselayer2.norm2.weight",[128],0.265356],
    ["features.denseblock3.denselayer2.norm2.bias",[128],0.265356],
    ["features.denseblock3.denselayer2.conv1.weight",[128,288,1,1],0.267959],
    ["features.denseblock3.denselayer2.norm1.weight",[288],0.267959],
    ["features.denseblock3.denselayer2.norm1.bias",[288],0.267959],
    ["features.denseblock3.denselayer1.conv2.weight",[32,128,3,3],0.270563],
    ["features.denseblock3.denselayer1.norm2.weight",[128],0.270563],
    ["features.denseblock3.denselayer1.norm2.bias",[128],0.270563],
    ["features.denseblock3.denselayer1.conv1.weight",[128,256,1,1],0.272877],
    ["features.denseblock3.denselayer1.norm1.weight",[256],0.272877],
    ["features.denseblock3.denselayer1.norm1.bias",[256],0.272877],
    ["features.transition2.conv.weight",[256,512,1,1],0.309906],
    ["features.transition2.norm.weight",[512],0.309906],
    ["features.transition2.norm.bias",[512],0.309906],
    ["features.denseblock2.denselayer12.conv2.weight",[32,128,3,3],0.32032],
    ["features.denseblock2.denselayer12.norm2.weight",[128],0.32032],
    ["features.denseblock2.denselayer12.norm2.bias",[128],0.32032],
    ["features.denseblock2.denselayer12.conv1.weight",[128,480,1,1],0.337678],
    ["features.denseblock2.denselayer12.norm1.weight",[480],0.337678],
    ["features.denseblock2.denselayer12.norm1.bias",[480],0.337678],
    ["features.denseblock2.denselayer11.conv2.weight",[32,128,3,3],0.348092],
    ["features.denseblock2.denselayer11.norm2.weight",[128],0.348092],
    ["features.denseblock2.denselayer11.norm2.bias",[128],0.348092],
    ["features.denseblock2.denselayer11.conv1.weight",[128,448,1,1],0.364292],
    ["features.denseblock2.denselayer11.norm1.weight",[448],0.364292],
    ["features.denseblock2.denselayer11.norm1.bias",[448],0.364292],
    ["features.denseblock2.denselayer10.conv2.weight",[32,128,3,3],0.374706],
    ["features.denseblock2.denselayer10.norm2.weight",[128],0.374706],
    ["features.denseblock2.denselayer10.norm2.bias",[128],0.374706],
    ["features.denseblock2.denselayer10.conv1.weight",[128,416,1,1],0.389749],
    ["features.denseblock2.denselayer10.norm1.weight",[416],0.389749],
    ["features.denseblock2.denselayer10.norm1.bias",[416],0.389749],
    ["features.denseblock2.denselayer9.conv2.weight",[32,128,3,3],0.400164],
    ["features.denseblock2.denselayer9.norm2.weight",[128],0.400164],
    ["features.denseblock2.denselayer9.norm2.bias",[128],0.400164],
    ["features.denseblock2.denselayer9.conv1.weight",[128,384,1,1],0.414049],
    ["features.denseblock2.denselayer9.norm1.weight",[384],0.414049],
    ["features.denseblock2.denselayer9.norm1.bias",[384],0.414049],
    ["features.denseblock2.denselayer8.conv2.weight",[32,128,3,3],0.424464],
    ["features.denseblock2.denselayer8.norm2.weight",[128],0.424464],
    ["features.denseblock2.denselayer8.norm2.bias",[128],0.424464],
    ["features.denseblock2.denselayer8.conv1.weight",[128,352,1,1],0.437192],
    ["features.denseblock2.denselayer8.norm1.weight",[352],0.437192],
    ["features.denseblock2.denselayer8.norm1.bias",[352],0.437192],
    ["features.denseblock2.denselayer7.conv2.weight",[32,128,3,3],0.447607],
    ["features.denseblock2.denselayer7.norm2.weight",[128],0.447607],
    ["features.denseblock2.denselayer7.norm2.bias",[128],0.447607],
    ["features.denseblock2.denselayer7.conv1.weight",[128,320,1,1],0.459178],
    ["features.denseblock2.denselayer7.norm1.weight",[320],0.459178],
    ["features.denseblock2.denselayer7.norm1.bias",[320],0.459178],
    ["features.denseblock2.denselayer6.conv2.weight",[32,128,3,3],0.469592],
    ["features.denseblock2.denselayer6.norm2.weight",[128],0.469592],
    ["features.denseblock2.denselayer6.norm2.bias",[128],0.469592],
    ["features.denseblock2.denselayer6.conv1.weight",[128,288,1,1],0.480007],
    ["features.denseblock2.denselayer6.norm1.weight",[288],0.480007],
    ["features.denseblock2.denselayer6.norm1.bias",[288],0.480007],
    ["features.denseblock2.denselayer5.conv2.weight",[32,128,3,3],0.490421],
    ["features.denseblock2.denselayer5.norm2.weight",[128],0.490421],
    ["features.denseblock2.denselayer5.norm2.bias",[128],0.490421],
    ["features.denseblock2.denselayer5.conv1.weight",[128,256,1,1],0.499678],
    ["features.denseblock2.denselayer5.norm1.weight",[256],0.499678],
    ["features.denseblock2.denselayer5.norm1.bias",[256],0.499678],
    ["features.denseblock2.denselayer4.conv2.weight",[32,128,3,3],0.510093],
    ["features.denseblock2.denselayer4.norm2.weight",[128],0.510093],
    ["features.denseblock2.denselayer4.norm2.bias",[128],0.510093],
    ["features.denseblock2.denselayer4.conv1.weight",[128,224,1,1],0.518193],
    ["features.denseblock2.denselayer4.norm1.weight",[224],0.518193],
    ["features.denseblock2.denselayer4.norm1.bias",[224],0.518193],
    ["features.denseblock2.denselayer3.conv2.weight",[32,128,3,3],0.528607],
    ["features.denseblock2.denselayer3.norm2.weight",[128],0.528607],
    ["features.denseblock2.denselayer3.norm2.bias",[128],0.528607],
    ["features.denseblock2.denselayer3.conv1.weight",[128,192,1,1],0.53555],
    ["features.denseblock2.denselayer3.norm1.weight",[192],0.53555],
    ["features.denseblock2.denselayer3.norm1.bias",[192],0.53555],
    ["features.denseblock2.denselayer2.conv2.weight",[32,128,3,3],0.545964],
    ["features.denseblock2.denselayer2.norm2.weight",[128],0.545964],
    ["features.denseblock2.denselayer2.norm2.bias",[128],0.545964],
    ["features.denseblock2.denselayer2.conv1.weight",[128,160,1,1],0.55175],
    ["features.denseblock2.denselayer2.norm1.weight",[160],0.55175],
    ["features.denseblock2.denselayer2.norm1.bias",[160],0.55175],
    ["features.denseblock2.denselayer1.conv2.weight",[32,128,3,3],0.562164],
    ["features.denseblock2.denselayer1.norm2.weight",[128],0.562164],
    ["features.denseblock2.denselayer1.norm2.bias",[128],0.562164],
    ["features.denseblock2.denselayer1.conv1.weight",[128,128,1,1],0.566793],
    ["features.denseblock2.denselayer1.norm1.weight",[128],0.566793],
    ["features.denseblock2.denselayer1.norm1.bias",[128],0.566793],
    ["features.transition1.conv.weight",[128,256,1,1],0.603822],
    ["features.transition1.norm.weight",[256],0.603822],
    ["features.transition1.norm.bias",[256],0.603822],
    ["features.denseblock1.denselayer6.conv2.weight",[32,128,3,3],0.645479],
    ["features.denseblock1.denselayer6.norm2.weight",[128],0.645479],
    ["features.denseblock1.denselayer6.norm2.bias",[128],0.645479],
    ["features.denseblock1.denselayer6.conv1.weight",[128,224,1,1],0.677879],
    ["features.denseblock1.denselayer6.norm1.weight",[224],0.677879],
    ["features.denseblock1.denselayer6.norm1.bias",[224],0.677879],
    ["features.denseblock1.denselayer5.conv2.weight",[32,128,3,3],0.719536],
    ["features.denseblock1.denselayer5.norm2.weight",[128],0.719536],
    ["features.denseblock1.denselayer5.norm2.bias",[128],0.719536],
    ["features.denseblock1.denselayer5.conv1.weight",[128,192,1,1],0.747308],
    ["features.denseblock1.denselayer5.norm1.weight",[192],0.747308],
    ["features.denseblock1.denselayer5.norm1.bias",[192],0.747308],
    ["features.denseblock1.denselayer4.conv2.weight",[32,128,3,3],0.788965],
    ["features.denseblock1.denselayer4.norm2.weight",[128],0.788965],
    ["features.denseblock1.denselayer4.norm2.bias",[128],0.788965],
    ["features.denseblock1.denselayer4.conv1.weight",[128,160,1,1],0.812108],
    ["features.denseblock1.denselayer4.norm1.weight",[160],0.812108],
    ["features.denseblock1.denselayer4.norm1.bias",[160],0.812108],
    ["features.denseblock1.denselayer3.conv2.weight",[32,128,3,3],0.853765],
    ["features.denseblock1.denselayer3.norm2.weight",[128],0.853765],
    ["features.denseblock1.denselayer3.norm2.bias",[128],0.853765],
    ["features.denseblock1.denselayer3.conv1.weight",[128,128,1,1],0.87228],
    ["features.denseblock1.denselayer3.norm1.weight",[128],0.87228],
    ["features.denseblock1.denselayer3.norm1.bias",[128],0.87228],
    ["features.denseblock1.denselayer2.conv2.weight",[32,128,3,3],0.913937],
    ["features.denseblock1.denselayer2.norm2.weight",[128],0.913937],
    ["features.denseblock1.denselayer2.norm2.bias",[128],0.913937],
    ["features.denseblock1.denselayer2.conv1.weight",[128,96,1,1],0.927823],
    ["features.denseblock1.denselayer2.norm1.weight",[96],0.927823],
    ["features.denseblock1.denselayer2.norm1.bias",[96],0.927823],
    ["features.denseblock1.denselayer1.conv2.weight",[32,128,3,3],0.96948],
    ["features.denseblock1.denselayer1.norm2.weight",[128],0.96948],
    ["features.denseblock1.denselayer1.norm2.bias",[128],0.96948],
    ["features.denseblock1.denselayer1.conv1.weight",[128,64,1,1],0.978737],
    ["features.denseblock1.denselayer1.norm1.weight",[64],0.978737],
    ["features.denseblock1.denselayer1.norm1.bias",[64],0.978737],
    ["features.norm0.weight",[64],0.978737],
    ["features.norm0.bias",[64],0.978737],
    ["features.conv0.weight",[64,3,7,7],1.0],
]

REPORT = "KOLO-REPORT "
COLUMNS = ["block", "order", "setting", "step_ms", "min_ms", "max_ms", "steps", "ranks", "device"]
# Settings are compared without what would change or slow them meanwhile.
DISTURBING = ["HOROVOD_AUTOTUNE", "HOROVOD_AUTOTUNE_LOG", "HOROVOD_TIMELINE"]
SPIN_SECONDS = 2e-4


class Failed(Exception):
    """A block has no result; the text says why."""


class Hopeless(Failed):
    """No block will have one."""


def at_least(least):
    def number(text):
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError("%d, expected %d or more" % (value, least))
        return value

    return number


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("-np", type=at_least(1), dest="ranks", help="ranks, started by horovodrun")
    add("-H", dest="hosts", help="hosts with slots for horovodrun: node1:4,node2:4")
    add("--launcher", help="starts the ranks instead of horovodrun: 'srun --ntasks=8 --mpi=pmix'")
    add("--blocks", type=at_least(1), default=BLOCKS, help="default: %(default)s; a verdict needs 4")
    add("--warmup", type=at_least(0), default=10, help="steps that do not count (%(default)s)")
    add("--steps", type=at_least(1), default=30, help="steps that count, in a block (%(default)s)")
    add("--seed", type=int, default=1, help="of the order (%(default)s)")
    add("--device", choices=["auto", "cpu", "cuda"], default="auto",
        help="where gradients lie; auto: GPUs if there are any")
    add("--dtype", choices=["float16", "float32", "float64"], default="float32")
    add("--patience", type=at_least(1), default=600, help="seconds for a block (%(default)s)")
    add("--dry-run", action="store_true", help="print commands in their order, and run none")
    add("--worker", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is None and (arguments.ranks is None) == (arguments.launcher is None):
        parser.error("give either -np, for horovodrun, or --launcher")
    if arguments.hosts and arguments.launcher:
        parser.error("-H is for horovodrun; name the hosts in --launcher")
    return arguments


def apply(setting, variables):
    """Sets what the setting sets, and nothing of what another one or the shell does."""
    for name in DISTURBING + [name for _, others in SETTINGS for name in others]:
        variables.pop(name, None)
    variables.update(SETTINGS[setting][1])


def command(arguments, setting):
    if arguments.launcher:
        launch = shlex.split(arguments.launcher)
    else:
        launch = ["horovodrun", "-np", str(arguments.ranks)]
        launch += ["-H", arguments.hosts] if arguments.hosts else []
    worker = [sys.executable, os.path.abspath(__file__), "--worker", str(setting)]
    for option in ["warmup", "steps", "device", "dtype"]:
        worker += ["--" + option, str(getattr(arguments, option))]
    return launch + worker


def orders(arguments):
    """Of each block, its settings in random order."""
    shuffle = random.Random(arguments.seed).shuffle
    for _ in range(arguments.blocks):
        order = list(range(len(SETTINGS)))
        shuffle(order)
        yield order


def line(text):
    return " ".join(str(text).split())


def quoted(words):
    return " ".join(shlex.quote(word) for word in words)


def dry_run(arguments):
    for block, order in enumerate(orders(arguments)):
        for place, setting in enumerate(order):
            label, variables = SETTINGS[setting]
            print("# block %d, order %d: %s" % (block, place, line(label)))
            words = ["%s=%s" % pair for pair in sorted(variables.items())]
            print(quoted((["env"] + words if words else []) + command(arguments, setting)))


def stop(process):
    for number in [signal.SIGTERM, signal.SIGKILL]:
        try:
            os.killpg(process.pid, number)
            process.communicate(timeout=10)
            return
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            pass


def measure(arguments, setting):
    """What rank 0 of a new process group reports."""
    variables = dict(os.environ)
    apply(setting, variables)
    process = subprocess.Popen(
        command(arguments, setting), env=variables, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace",
        start_new_session=True)
    try:
        output = process.communicate(timeout=arguments.patience)[0]
    except subprocess.TimeoutExpired:
        stop(process)
        raise Failed("no result after %d s (--patience)" % arguments.patience)
    except BaseException:
        stop(process)
        raise
    return judge(arguments, process.returncode, output)


def judge(arguments, status, output):
    reports = []
    for part in output.split(REPORT)[1:]:
        try:
            reports.append(json.JSONDecoder().raw_decode(part)[0])
        except ValueError:
            raise Failed("its report is garbled: %s" % line(part[:200]))
    for report in reports:
        if "error" in report:
            raise (Hopeless if report["hopeless"] else Failed)(report["error"])
    if status != 0 or not reports:
        last = ([text for text in output.splitlines() if text.strip()] or ["no output"])[-1]
        raise Failed("exit status %d and %s report; its last line: %s"
                     % (status, "a" if reports else "no", line(last)[:300]))
    if len(reports) > 1:
        raise Hopeless("%d processes ran alone; the launcher must start them as one group that"
                       " Horovod's controller (MPI or Gloo) knows" % len(reports))
    if arguments.ranks not in (None, reports[0]["ranks"]):
        raise Failed("%d ranks, expected %d" % (reports[0]["ranks"], arguments.ranks))
    return reports[0]


def lead(arguments):
    launcher = command(arguments, 0)[0]
    if shutil.which(launcher) is None:
        sys.exit("%s is not on this machine's PATH; activate the environment that has Horovod with"
                 " PyTorch (HOROVOD_WITH_PYTORCH=1 pip install 'horovod[pytorch]'), or give"
                 " --launcher" % launcher)
    say = lambda text: print(text, file=sys.stderr, flush=True)
    if arguments.blocks < 4:
        say("%d blocks measure, but a verdict needs 4" % arguments.blocks)
    print("# workload %s, %d gradients; seed %d, %d + %d steps a block"
          % (line(WORKLOAD), len(GRADIENTS), arguments.seed, arguments.warmup, arguments.steps))
    for label, variables in SETTINGS:
        print("# %s: %s" % (line(label), line(" ".join("%s=%s" % pair for pair in variables.items()))))
    print("# " + line(quoted(command(arguments, 0))))
    rows = csv.writer(sys.stdout, lineterminator="\n")
    rows.writerow(COLUMNS)
    measured = 0
    for block, order in enumerate(orders(arguments)):
        for place, setting in enumerate(order):
            label = SETTINGS[setting][0]
            where = "block %d of %d, %s" % (block, arguments.blocks, line(label))
            try:
                report = measure(arguments, setting)
            except Hopeless as problem:
                sys.stdout.flush()
                sys.exit("%s: %s" % (where, line(problem)))
            except (Failed, OSError) as problem:
                print("# %s: %s" % (where, line(problem)), flush=True)
                say("%s: %s" % (where, line(problem)))
                continue
            measured += 1
            times = ["%.6f" % report[column] for column in COLUMNS[3:6]]
            rows.writerow([block, place, label] + times + [report[name] for name in COLUMNS[6:]])
            sys.stdout.flush()
            say("%s: %.3f ms" % (where, report["step_ms"]))
    if measured == 0:
        sys.exit("no block has a result")


def tell(report):
    sys.stdout.write("\n" + REPORT + json.dumps(report) + "\n")
    sys.stdout.flush()


def wait_until(moment):
    while True:
        left = moment - time.perf_counter()
        if left <= 0:
            return
        time.sleep(left - SPIN_SECONDS if left > SPIN_SECONDS else 0)


def work(arguments):
    """One rank of a block."""
    apply(arguments.worker, os.environ)
    try:
        import torch
        import horovod.torch as hvd
    except ImportError as problem:
        text = "Horovod with PyTorch cannot be used by %s: %s" % (sys.executable, problem)
        tell({"error": text, "hopeless": True})
        sys.exit(1)
    hvd.init()
    cuda = torch.cuda.is_available() if arguments.device == "auto" else arguments.device == "cuda"
    device = torch.device("cuda", hvd.local_rank()) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dtype = getattr(torch, arguments.dtype)
    value = lambda rank: 1.0 + rank % 2
    tensors = [torch.full(shape, value(hvd.rank()), dtype=dtype, device=device)
               for _, shape, _ in GRADIENTS]
    forward, backward, optimizer = FORWARD_MS / 1e3, BACKWARD_MS / 1e3, OPTIMIZER_MS / 1e3

    def step():
        begin = time.perf_counter()
        handles = []
        for (name, _, share), tensor in zip(GRADIENTS, tensors):
            wait_until(begin + forward + share * backward)
            handles.append(hvd.allreduce_async_(tensor, name=name, op=hvd.Average))
        wait_until(begin + forward + backward)
        for handle in handles:
            hvd.synchronize(handle)
        if cuda:
            torch.cuda.synchronize()
        wait_until(time.perf_counter() + optimizer)
        return 1e3 * (time.perf_counter() - begin)

    for _ in range(arguments.warmup):
        step()
    times = [step() for _ in range(arguments.steps)]
    for tensor in tensors:
        tensor.fill_(value(hvd.rank()))
    step()
    mean = statistics.mean(value(rank) for rank in range(hvd.size()))
    for (name, _, _), tensor in zip(GRADIENTS, tensors):
        if tensor.numel() and float((tensor - mean).abs().max()) > 0.01:
            text = "rank %d has a wrong result in %s, expected %g" % (hvd.rank(), name, mean)
            tell({"error": text, "hopeless": False})
            sys.exit(1)
    of_ranks = hvd.allgather(torch.tensor([times], dtype=torch.float64), name="kolo.times").tolist()
    if hvd.rank() == 0:
        slowest = [max(of_step) for of_step in zip(*of_ranks)]
        tell({
            "step_ms": statistics.median(slowest), "min_ms": min(slowest), "max_ms": max(slowest),
            "steps": len(slowest), "ranks": hvd.size(), "device": device.type,
        })
    hvd.shutdown()


def main():
    arguments = parse()
    if arguments.worker is not None:
        work(arguments)
    elif arguments.dry_run:
        dry_run(arguments)
    else:
        try:
            lead(arguments)
        except KeyboardInterrupt:
            sys.exit(130)


if __name__ == "__main__":
    main()
