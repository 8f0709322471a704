#!/bin/sh
# As NVIDIA's: a banner, then the command takes this process's place.
echo "== stand-in for NVIDIA's PyTorch image: no GPU library is in it =="
exec "$@"
