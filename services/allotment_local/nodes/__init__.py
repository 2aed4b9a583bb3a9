"""Fake nodes: a device plugin and a kubelet for every Node, in the API server's process.

There is no container and no card behind them, but the protocol is the real one: the plugin finds
the pending pod by annotations as Volcano's, HAMi's and Huawei's plugins do, and the kubelet refuses
what a real one would refuse. Everything handed out is booked per card by `books`, which gets
nothing from the scheduler: it is the independent witness of whether a card was ever oversold.

A Node's cards are read once (`inventory`); what it shows of them follows from faults and from the
device configuration (`showing`). Each kind of device plugin is one file, `plugin_<kind>`.

Source: `volcano-vgpu-device-plugin`, `volcano-sh/devices`, HAMi's `ascend-device-plugin`, Huawei's
MindCluster, Kubernetes `pkg/kubelet/lifecycle`.
"""
