"""A Kubernetes API server in memory, over real HTTP, for local mode and the tests.

Enough of the API for unmodified kubectl and the official clients: discovery, tables, watches,
patches, bindings, custom resources. `store.Store` is the state and its rules, usable in process;
`app.build_app` puts HTTP in front of it. No authentication: serve it on loopback only.

Not simulated: controllers (a Deployment makes no Pods), container logs and exec, admission
webhooks and policies (stored, never asked), server-side apply, and protobuf, which some typed
commands of kubectl send.
"""
