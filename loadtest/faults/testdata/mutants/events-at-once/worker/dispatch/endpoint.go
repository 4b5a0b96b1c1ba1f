package dispatch

// orderKey is more than any key has, so that none names its order, and no event waits for an earlier
// one of its order.
const orderKey = orderKeyOriginal << 20
