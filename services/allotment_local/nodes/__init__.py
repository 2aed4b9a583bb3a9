"""Fake GPU nodes: a device plugin and a kubelet for every Node, in the API server's process.

There is no container and no GPU behind them, but the protocol is the real one: the plugin finds the
pending pod by annotations as Volcano's plugins do, and the kubelet refuses what a real one would
refuse. Everything handed out is booked per card by `books`, which was told nothing by the
scheduler: it is the independent witness of whether a card was ever oversold.

Source: `volcano-vgpu-device-plugin`, `volcano-sh/devices`, Kubernetes `pkg/kubelet/lifecycle`.
"""
