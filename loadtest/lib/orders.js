// Orders as a vendor's tills send them: real places, names with every letter of
// Turkish, every form of a phone number and of a payment.

const places = [
  ['İstanbul', 'Kadıköy', 'Moda Caddesi', 40.9816, 29.0258],
  ['İstanbul', 'Şişli', 'Abdi İpekçi Caddesi', 41.0498, 28.9921],
  ['İstanbul', 'Üsküdar', 'Hakimiyeti Milliye Caddesi', 41.024, 29.0155],
  ['Ankara', 'Çankaya', 'Tunalı Hilmi Caddesi', 39.907, 32.8602],
  ['Ankara', 'Keçiören', 'Fatih Caddesi', 39.978, 32.866],
  ['İzmir', 'Alsancak', 'Kıbrıs Şehitleri Caddesi', 38.4382, 27.1432],
  ['Bursa', 'Nilüfer', 'Fatih Sultan Mehmet Bulvarı', 40.215, 28.98],
  ['Antalya', 'Muratpaşa', 'Işıklar Caddesi', 36.88, 30.709],
  ['Adana', 'Seyhan', 'Ziyapaşa Bulvarı', 36.996, 35.323],
];
const firstNames = ['Ayşe', 'Mehmet', 'Zeynep', 'Elif', 'Hüseyin', 'İsmail', 'Gülşah', 'Çağrı'];
const surnames = ['Yılmaz', 'Kaya', 'Şahin', 'Çelik', 'Öztürk', 'Ünal', 'Işık', 'Güneş'];
const notes = ['', 'Zili çalmayın, bebek uyuyor', 'Kapıda nakit ödenecek', 'Güvenliğe bırakın'];
const phones = ['', '0', '+90', '+900'];
const payments = ['Cash', 'Card', 'Prepaid', null];

// The reasons that a sandbox courier can be asked for (SIM:FAIL=…).
export const failures = ['CustomerRefused', 'AddressNotFound', 'CourierIncident', 'CustomerUnreachable', 'StoreClosed', 'Other'];

// Random numbers from 0 to 1 that are the same for the same seed (mulberry32).
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

export function pick(roll, list) {
  return list[Math.floor(roll() * list.length)];
}

// The body of POST /orders with this external id. `note` is the beginning of
// packageNote, such as a sandbox's SIM: trigger.
export function draw(roll, storeId, externalOrderId, note) {
  const [city, district, street, latitude, longitude] = pick(roll, places);
  const amount = Math.round(8000 + roll() * 170000) / 100;
  const type = pick(roll, payments);
  const order = {
    externalStoreId: storeId,
    externalOrderId,
    recipient: {
      name: `${pick(roll, firstNames)} ${pick(roll, surnames)}`,
      phone: `${pick(roll, phones)}5${String(Math.floor(roll() * 1e9)).padStart(9, '0')}`,
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

// A branch to register with PUT /stores/{id}.
export function branch(number) {
  const [city, district, street, latitude, longitude] = places[number % places.length];
  return {
    taxNumber: String(1000000001 + number),
    name: `Anadolu Sofrası ${district}`,
    phone: `0212${String(5550000 + number)}`,
    address: { text: `${street} No: ${number + 1}, ${district}/${city}`, latitude, longitude },
  };
}

// Orders that must be refused: [status, errorCode, what breaks the rule].
export const invalid = [
  [422, 'INVALID_PHONE', (o) => { o.recipient.phone = '532 123'; }],
  [422, 'DROPOFF_OUT_OF_COVERAGE', (o) => { moveTo(o, 38.5012, 43.373); }], // Van, where the demo fleet does not go
  [422, 'INVALID_ADDRESS', (o) => { o.dropoff.text = 'Moda'; }],
  [409, 'STORE_NOT_CONFIGURED', (o) => { o.externalStoreId = 'no-such-store'; }],
  [422, 'VALIDATION_FAILED', (o) => { o.orderAmount = 12.345; }],
  [422, 'INVALID_RECIPIENT', (o) => { o.recipient.name = 'A'; }],
  [422, 'COORDINATE_MISMATCH', (o) => { moveTo(o, 37.9742, 23.7279); }], // Athens
  [422, 'READY_AT_TOO_FAR', (o) => { o.readyAt = new Date(Date.now() + 5 * 3600e3).toISOString(); }],
  [503, 'FLEET_UNAVAILABLE', (o) => { o.packageNote = 'SIM:FLEET_UNAVAILABLE'; }],
  [423, 'FLEET_SUSPENDED', (o) => { o.packageNote = 'SIM:FLEET_SUSPENDED'; }],
  [422, 'VALIDATION_FAILED', (o) => { o.payment = { type: 'Barter' }; }],
];

function moveTo(order, latitude, longitude) {
  order.dropoff.latitude = latitude;
  order.dropoff.longitude = longitude;
}
