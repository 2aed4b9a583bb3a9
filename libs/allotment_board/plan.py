"""A request as one array of numbers, `encoded`, which the loops read: what stands where.

First what stands at the places of the plan, then, each from the place on that is named in the plan,

    asks      (ASK_COUNT, FIELDS, KIND_COUNT), device requests in the order in which they are served
    extended  (EXTENDED_COUNT, 2), host row and amount of every extended resource
    terms     (len(TERMS),), where in `encoded` the numbers of a plugin's term begin, 0 for one that
              does not count; behind that the numbers
    values    what typical pods ask for (`values`), under `fill-ahead`: for each family
              that the pod asks of, or of all for a pod that asks for none

And what stands where in what the loops find.
"""

# Places of the plan.
(
    NEED_PODS,
    NEED_CPU,
    NEED_MEMORY,
    NEED_PLUGIN,
    NEED_FOR_SHARES,
    NEED_FOR_WHOLE,
    CHARGE_CPU,
    CHARGE_KIB,
    POLICY,
    DEVICE_WEIGHT,
    HOST_POLICY,
    HOST_WEIGHT,
    FIT_WEIGHT,
    KIND_MASK,
    AMOUNT_SHIFT,
    HAS_MASK,
    MAY_EXCEED,
    IS_CAPPED,
    IS_COMPARED,
    CONSTANT_MICRO,
    ASK_COUNT,
    KIND_COUNT,
    EXTENDED_COUNT,
    EXTENDED_AT,
    TERMS_AT,
    VALUES_AT,
    PLAN_LENGTH,
) = range(27)
NONE, BINPACK, SPREAD, FILL_AHEAD = range(4)
"""What `POLICY` and `HOST_POLICY` say; of hosts not the last."""

# Fields of a device request. What is not said by kind stands at every kind.
(
    NEED,
    RANK,
    AMOUNT,
    AFTER,
    CHARGED_MIB,
    SPARE_MIB,
    SIZE_MIB,
    DIVISOR_MIB,
    CHARGED_PCT,
    SIZE_PCT,
    IS_SECOND_BEST,
    IS_CHIP,
    FIT_MICRO,
    NUMBER,
    ORDER,
    SCORING,
    EACH_ONCE,
    IS_WIRED,
    CHIP,
    FAMILY_VALUES_AT,
    FIELDS,
) = range(21)
BY_USE, BY_HOLDERS, BY_PLACE, BY_VALUE = range(4)
"""What `ORDER` says: what a key's amount counts. By value it is made while cards are chosen."""
EACH, FIRST, COMPUTE = range(3)
"""What `SCORING` says: which cards count, and by what (`devices.base`)."""

MICRO, OF_GIVEN, LEFTOVER, LAST, FOUND = range(5)
"""Rows of `found` (FOUND, N), with one column for each position of a call: the device policy's
points, −1 where the pod does not fit; the points for how much is asked for of what is given; what
is left over. In the last row columns are nodes: where among the call's positions each comes last.
"""
