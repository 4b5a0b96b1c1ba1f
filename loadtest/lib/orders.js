// Orders as a vendor's tills send them: real places, names with every letter of
// Turkish, every form of a phone number and of a payment.

const catalogue = JSON.parse(open(import.meta.resolve('../day/orders.json')));
const { places, firstNames, surnames, phonePrefixes, notes, payments } = catalogue;
const kindsOf = (name) => catalogue.classes.find((c) => c.name === name).kinds;

// The reasons that a sandbox courier can be asked for (SIM:FAIL=…).
export const failures = kindsOf('failing').map((kind) => kind.failure);

// Orders that must be refused, each with the answer's status and code.
export const invalid = kindsOf('invalid').filter((kind) => kind.change);

// dice returns a function that returns random numbers from 0 to 1, 1 excluded. They are the same for the
// same seed (mulberry32).
export function dice(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

// pick returns one of the elements of a list. `roll` is a function of dice().
export function pick(roll, list) {
  return list[Math.floor(roll() * list.length)];
}

// draw returns the body of POST /orders, with everything but the ids drawn by `roll`. `note` is the
// packageNote, such as a sandbox's SIM: trigger; without one it is drawn, too.
export function draw(roll, storeId, externalOrderId, note) {
  const { city, district, street, latitude, longitude } = pick(roll, places);
  const amount = Math.round(8000 + roll() * 170000) / 100;
  const type = pick(roll, payments);
  const order = {
    externalStoreId: storeId,
    externalOrderId,
    recipient: {
      name: `${pick(roll, firstNames)} ${pick(roll, surnames)}`,
      phone: `${pick(roll, phonePrefixes)}5${String(Math.floor(roll() * 1e9)).padStart(9, '0')}`,
    },
    dropoff: {
      text: `${street} No: ${1 + Math.floor(roll() * 200)}, ${district}/${city}`,
      latitude: latitude + (roll() - 0.5) * 0.005,
      longitude: longitude + (roll() - 0.5) * 0.005,
      doorNo: String(1 + Math.floor(roll() * 40)),
    },
    packageNote: note || pick(roll, notes),
    orderAmount: amount,
  };
  if (type) order.payment = type === 'Prepaid' ? { type } : { type, collectionAmount: amount };
  return order;
}

// branch returns the body of PUT /stores/{id} that registers a branch. Each number has a branch of its own.
export function branch(number) {
  const { city, district, street, latitude, longitude } = places[number % places.length];
  return {
    taxNumber: String(1000000001 + number),
    name: `Anadolu Sofrası ${district}`,
    phone: `0212${String(5550000 + number)}`,
    address: { text: `${street} No: ${number + 1}, ${district}/${city}`, latitude, longitude },
  };
}

// apply changes an order to what a kind of the catalogue says. Of an object in the order only the members
// that the change names are changed.
export function apply(change, order) {
  for (const [name, value] of Object.entries(change)) {
    const areObjects = typeof value === 'object' && typeof order[name] === 'object';
    order[name] = areObjects ? { ...order[name], ...value } : value;
  }
}
