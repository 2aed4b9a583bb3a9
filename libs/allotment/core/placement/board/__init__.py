"""The rules of placement on columns, for many nodes at once.

One position a node, in name order; one slot a card; `N` nodes, `D` cards on the node that has
the most.

* `packed[N, D]` (`packing.py`): what a card has free: memory, room for holders and compute,
  three fields in one int64, a guard bit above each
* `keys[N, D]` (`core/placement/board/arrays.py`): in which order cards are tried: what the
  order prefers, the card's place among equals, its kind, in one integer
* kinds (`core/placement/board/cards.py`): what cards have in common that a request can ask
  about: family, mode, model, slots, sizes, health, and the state of partitioned cards
* `host` (`core/placement/board/arrays.py`): per node: free pods, CPU and memory; what the
  host's points are made from; the free amount of every extended resource
* needs `[K]` (`shapes.py`): a request's threshold on every kind, packed like what is free;
  `NEVER` for a kind that cannot do
* row: rank, fit, slots `[N]` (`core/placement/board/rows.py`): per request: every node's rank
  (−1: does not fit) and the cards it would give
* top (`core/placement/board/top.py`): per request: the best entries in order

One subtraction asks three questions. With all guards set in what is free and none in what is
needed, `free - need` leaves every guard standing exactly if there is enough of all three. Wrong
family, mode, model or health need more than there can be; a percentage is resolved per kind; a
whole card needs the room of a card without holders. So one comparison decides for all cards of
all nodes that are looked at.

One maximum chooses. The highest key among the good cards names the card, its kind (and so its
size and what to charge) and, where the order goes by use, how much of it is in use. A node's
rank is an integer as well: points, then leftover.

Rows remember. A row is scored in full when a request is first asked for, and afterwards, by the
same code (`core/placement/board/score.py`), only at positions that were touched since; the last
512 requests have one. An allocation is a subtraction on its cards and its host; what a cycle
assumes is booked on the same arrays and given back exactly.

The best are kept in order. `core/placement/board/top.py` keeps the best entries of a row, at
most 256, complete above a floor: a rank that changes is moved, enters or leaves (`keep`),
and only when too few are left above the floor is the row searched again. So the cost of a
decision hardly grows with the nodes: what does is a search now and then.

Reasons are made when asked for (`core/placement/board/reasons.py`): only a refusal needs them,
and they are kept up to date like ranks.

Each rule twice: plain, and as a loop. What `fits` and the scores say of one node in plain Python
is said once more for many nodes as loops over the columns (`core/placement/board/loops.py`, and
`choice.py` for cards; the bodies of the plugins' terms stand beside their rules in
`core/placement/rules/`). A request is told to them as one table of numbers
(`core/placement/board/encode.py`; `plan.py` says what stands where): an array that is handed
over costs about as much as a position that is scored. There are two ways in, one with all arrays
and one with those that a request for shares needs while no plugin, no rule about other pods and
no list of cards counts. NumPy fills the columns, compares nodes with each other (`relative`,
`interpod`), and scores nodes for policies that are there for comparison (`OnColumns`); for these
the loops still say which nodes come into question, and add up the terms. For policies that look
ahead the table holds what typical pods ask for (`core/placement/board/values.py`).

The loops run compiled or as they are, with the same integers, so it does not matter to any
decision, nor to its replay, when or whether machine code is there
(`adapters/service/machine_code.py`). Uncompiled they take memory views in place of arrays, and
are for clusters below 512 nodes and for machines without numba; from 512 nodes on the services
bring the compiled ones in, in a thread, and have what is not in the cache compiled by another
process. The code is kept in the user's cache under a fingerprint of all that went into it. If
it cannot be loaded or made, the cache's directory is thrown away and it is made once more
without the cache; failing that, the loops go on uncompiled, the service logs one warning with
the reason, and `allot_compiled_loops` stays 0. An image carries the code for any processor of
its kind, and a start copies it into its cache. What both cost is in `tests/bench/README.md`.

The oracle. `evaluator.py` (verdicts node by node) and `predicates.fits`, `scores.score` and
each policy's plain Python are short enough to be checked by hand. Property tests hold both
readings equal for every policy, under random events: nodes that join, change and leave, pods
that come and go, policies that change. `allot bench core` times both in one run.

How device families ride on it

* **Several device requests in one pod**: works today. Each is scored in turn, and what it took
  is charged on the copies of keys and amounts that the next one sees (`rows.take`).
* **More than eight cards a node**: `D` is whatever the widest node has. Chosen slots are stored
  as uint16. The price: every node's row is as wide as the widest.
* **Nodes that join, leave, change.** A join makes all positions anew, in name order (so that
  the first of equals is the first by name); joins that come together share one rebuild. A node
  that left keeps its position, emptied. A change writes one position again, unless it brings
  more cards than `D`, a resource that nobody listed, or a kind for which keys have no bit left.
* **Partitioned cards** (MIG, 310P). What can be had from such a card does not follow from
  amounts, but it follows from its state, and states are few (about twenty for an A100). So
  every state is a *kind* of its own, all of them known to the columns from the start: a request
  has a threshold, a charge and the kind that comes after for each. Booking a piece moves the
  card to another kind; needs, keys, ranks and top stay as they are. Which of several equal
  instances a pod gets is looked up only for the place that wins
  (`core/placement/board/board.py`). `allot bench core --devices mig` decides at two thirds of
  the rate of shares.
* **Ascend templates** are resolved when a pod is read; soft slices are shares. AI cores are
  counted where the card's compute is. Chips of one network come together: an order on top of
  the policy's (`board_rows._wired`).
* **Pods that keep apart** take a mask of single cards, made from the holders' tags for requests
  that ask for it only.
* **Scores of host use.** Points from CPU and memory after placement, binpack or spread, are
  computed for all touched positions at once from the columns of the host
  (`core/placement/board/loops.py`; plain in `points.py` and `scores.py`). What share of CPU and
  of memory is in use or free follows from these columns alone, so least, most and balanced use
  are more terms of the same kind, added to the same rank. A weighted binpack over listed
  resources needs one more column per resource, how much of it there is: free amounts have one,
  sizes are read from the facts today, and only for pods without devices.
* **Scores of images** follow from the nodes' facts alone, so a row's points for them are
  reckoned again when some fact changed (`core/placement/board/terms.py`; plain in
  `rules/images.py`). Facts name only images that pods of ours asked for, and only under a
  policy that weighs them (`normalise/images.py`); a node that has one already is told of with
  its next status.

Batches that are placed whole or not at all

`core/placement/gang.py: place_whole` places every pod of a batch on top of what the earlier
ones took, or none: at the first that finds no place everything since the mark is given back,
exactly. Before it tries, it asks for an upper bound per request, counted on the cards and hosts
of the nodes that fit (`core/placement/board/rows.py`, plain in `evaluator.py`), and refuses a
hopeless batch with counted reasons and no trial. `queues/round/places.py` asks the same bound
for groups.
"""
