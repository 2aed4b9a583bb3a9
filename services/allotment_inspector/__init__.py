"""The inspector: web pages about the log, at any of its moments. It reads, and writes nothing.

How a page is made, from the log to the browser:

    log ─▶ history.py ─▶ Moment ─▶ pages/NAME.py: view() ─▶ a struct ─▶ templates/NAME.html
           (any sequence)          (pure)                    └─▶ the same as JSON

* `history`: the log followed, its past kept reachable in bounded memory; `Moment` is what a page is
  drawn from: the state at one sequence, and the records around it. `index` knows when each record
  was written and which are marked; whom they are about is kept in files.
* `pages`: one file a page, one row a page in `PAGES`. A view is a function of a moment, of what the
  address matched and of its query, and returns a struct; that struct is the JSON of the page
  (``?format=json`` or ``Accept: application/json``). What does not exist is a value as well:
  `NotFound`, with the nearest names. Views run in a worker thread: they may take their time, and
  may ask the moment for records.
* `templates`: `base.html` has the bar, the sentence, the dock with the time slider, and the command
  line of the page. A page extends it and fills the block ``main``; its struct is ``page``. What can
  differ between two moments stands in parts:

      {% call part("waiting", tag="section", class="panel") %} … {% endcall %}

  A part becomes an element with ``data-key`` and ``data-v``, a digest of what is in it. With
  ``?parts=1`` the answer is the parts alone, as JSON, and the browser swaps those whose digest
  differs. Parts may be inside each other if the outer one is given what it depends on
  (``v=page.names``): then its digest leaves the inner ones out. Ages are drawn with ``age(ms)``:
  they pass without counting as a change. Links are made with ``link("/nodes/x", card="GPU-0")``,
  which takes the moment along; ``path("pods", namespace, name)`` escapes each step of an address.
* `server`: addresses, headers, the token, live updates. No page has a script or style inline.
* `static`: one style sheet, and the scripts: `app.js` for every page, others for one page each.

Nothing here knows NATS: `allotment.adapters.service.reading` opens the log.
"""
