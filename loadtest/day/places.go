package day

import "math/rand/v2"

// place is a neighbourhood: a street that exists there, and where it is.
type place struct {
	city, district, street string
	latitude, longitude    float64
}

// places are real ones in the six cities that the demo fleet covers; the first
// two of each city also have a branch of the vendor.
var places = []place{
	{"İstanbul", "Kadıköy", "Moda Caddesi", 40.9816, 29.0258},
	{"İstanbul", "Beşiktaş", "Ortabahçe Caddesi", 41.0428, 29.0076},
	{"İstanbul", "Şişli", "Abdi İpekçi Caddesi", 41.0498, 28.9921},
	{"İstanbul", "Üsküdar", "Hakimiyeti Milliye Caddesi", 41.0240, 29.0155},
	{"İstanbul", "Bakırköy", "İncirli Caddesi", 40.9836, 28.8735},
	{"İstanbul", "Ataşehir", "Atatürk Mahallesi Ertuğrul Gazi Sokak", 40.9920, 29.1240},
	{"İstanbul", "Beyoğlu", "Sıraselviler Caddesi", 41.0333, 28.9841},
	{"İstanbul", "Maltepe", "Bağdat Caddesi", 40.9370, 29.1310},
	{"Ankara", "Çankaya", "Tunalı Hilmi Caddesi", 39.9070, 32.8602},
	{"Ankara", "Kızılay", "Meşrutiyet Caddesi", 39.9186, 32.8560},
	{"Ankara", "Bahçelievler", "Aşkabat Caddesi", 39.9215, 32.8243},
	{"Ankara", "Keçiören", "Fatih Caddesi", 39.9780, 32.8660},
	{"Ankara", "Batıkent", "İnönü Mahallesi 1748. Cadde", 39.9690, 32.7300},
	{"Ankara", "Çayyolu", "Ümit Mahallesi 2432. Cadde", 39.8900, 32.6990},
	{"İzmir", "Alsancak", "Kıbrıs Şehitleri Caddesi", 38.4382, 27.1432},
	{"İzmir", "Karşıyaka", "Cemal Gürsel Caddesi", 38.4571, 27.1180},
	{"İzmir", "Bornova", "Mustafa Kemal Caddesi", 38.4668, 27.2180},
	{"İzmir", "Buca", "Menderes Caddesi", 38.3850, 27.1740},
	{"İzmir", "Göztepe", "Mithatpaşa Caddesi", 38.3990, 27.0850},
	{"Bursa", "Osmangazi", "Atatürk Caddesi", 40.1830, 29.0640},
	{"Bursa", "Nilüfer", "Fatih Sultan Mehmet Bulvarı", 40.2150, 28.9800},
	{"Bursa", "Yıldırım", "Ankara Caddesi", 40.1900, 29.1120},
	{"Bursa", "Mudanya", "Halitpaşa Caddesi", 40.3740, 28.8830},
	{"Antalya", "Muratpaşa", "Işıklar Caddesi", 36.8800, 30.7090},
	{"Antalya", "Konyaaltı", "Atatürk Bulvarı", 36.8690, 30.6480},
	{"Antalya", "Lara", "Barınaklar Bulvarı", 36.8530, 30.7560},
	{"Antalya", "Alanya", "Atatürk Bulvarı", 36.5450, 32.0020},
	{"Adana", "Seyhan", "Ziyapaşa Bulvarı", 36.9960, 35.3230},
	{"Adana", "Çukurova", "Turgut Özal Bulvarı", 37.0440, 35.2870},
	{"Adana", "Yüreğir", "Karataş Caddesi", 36.9850, 35.3450},
	{"Adana", "Ceyhan", "Atatürk Caddesi", 37.0280, 35.8150},
}

// Where the demo fleet does not deliver: in Turkey, and abroad.
var (
	outOfCoverage = place{"Van", "İpekyolu", "Cumhuriyet Caddesi", 38.5012, 43.3730}
	outOfTurkey   = place{"Athens", "Plaka", "Adrianou", 37.9742, 23.7279}
)

// cities are the cities of places, in their order.
func cities() (names []string) {
	for _, p := range places {
		if len(names) == 0 || names[len(names)-1] != p.city {
			names = append(names, p.city)
		}
	}
	return names
}

// near is a door some streets away from p, at most about 300 m.
func (p place) near(rng *rand.Rand) place {
	p.latitude += (rng.Float64() - 0.5) * 0.005
	p.longitude += (rng.Float64() - 0.5) * 0.005
	return p
}

// The customers.
var (
	firstNames = []string{"Ayşe", "Mehmet", "Zeynep", "Mustafa", "Elif", "Ali", "Fatma", "Hüseyin", "Emine", "İsmail", "Gülşah", "Çağrı"}
	surnames   = []string{"Yılmaz", "Kaya", "Demir", "Şahin", "Çelik", "Yıldırım", "Öztürk", "Aydın", "Özkan", "Ünal", "Işık", "Güneş"}
	notes      = []string{"", "", "Zili çalmayın, bebek uyuyor", "Kapıda nakit ödenecek", "Sıcak paket", "Güvenliğe bırakın"}
)
