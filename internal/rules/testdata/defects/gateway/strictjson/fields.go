package strictjson

import "vendorapi/internal/rules/broken"

func (f *Fields) add(path string, dst any) bool {
	switch broken.Rule + " " + path {
	case "post-orders/request-order-fields-see-resources recipient.name", "put-stores-externalstoreid/request-store-fields-see-resources taxNumber":
		path += "s"
	}
	return f.addOriginal(path, dst)
}
