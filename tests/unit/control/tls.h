/* SPDX-License-Identifier: MIT */
/*
 * An authority of the tests' own and a server certificate of it for `localhost`, valid for a
 * hundred years. The key guards nothing: it is here for everybody to read.
 */
#ifndef MR_TESTS_CONTROL_TLS_H
#define MR_TESTS_CONTROL_TLS_H

static const char tls_roots[] = "-----BEGIN CERTIFICATE-----\n"
                                "MIIBZzCCAQ2gAwIBAgIBATAKBggqhkjOPQQDAjAaMRgwFgYDVQQDDA9tb29ucmVs\n"
                                "YXkgdGVzdHMwIBcNMjAwMTAxMDAwMDAwWhgPMjEyMDAxMDEwMDAwMDBaMBoxGDAW\n"
                                "BgNVBAMMD21vb25yZWxheSB0ZXN0czBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IA\n"
                                "BKGvHZeT/GwO9RlPDHqHsleNO0oI4UGLwR/yC/9TOtyZk1lso2WFWajiilBaiVVz\n"
                                "achO3OXwh7vOV9pWHaQqciOjQjBAMA8GA1UdEwEB/wQFMAMBAf8wHQYDVR0OBBYE\n"
                                "FPkirsT1pKGFKTvXSogHKppUDPqIMA4GA1UdDwEB/wQEAwICBDAKBggqhkjOPQQD\n"
                                "AgNIADBFAiBZMBVp9W0KwxtLe5Nf35bxjIaAb8r4mZe5EBNnKdN8dwIhAKs2xY3O\n"
                                "HKVBKKEMmnCbsfGShcw7GSZkIlcOVJzYEpGG\n"
                                "-----END CERTIFICATE-----\n";

static const char tls_certificate[] =
    "-----BEGIN CERTIFICATE-----\n"
    "MIIBgjCCASigAwIBAgIBAjAKBggqhkjOPQQDAjAaMRgwFgYDVQQDDA9tb29ucmVs\n"
    "YXkgdGVzdHMwIBcNMjAwMTAxMDAwMDAwWhgPMjEyMDAxMDEwMDAwMDBaMBQxEjAQ\n"
    "BgNVBAMMCWxvY2FsaG9zdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABKsPFJnZ\n"
    "+a0y7q6bcg3fBNafeAfDIs6cphL5ABiqjoXRcyASjKhBugaug2M+cczIicD2R4Y7\n"
    "w71k1fazODi9DamjYzBhMAkGA1UdEwQCMAAwFAYDVR0RBA0wC4IJbG9jYWxob3N0\n"
    "MB0GA1UdDgQWBBTIJGfFjOY/9kF5vNwNOHQXe/tefTAfBgNVHSMEGDAWgBT5Iq7E\n"
    "9aShhSk710qIByqaVAz6iDAKBggqhkjOPQQDAgNIADBFAiEA0NUaF5Ji3fIRc8KH\n"
    "vonmUKN5Ch82VaZOtTjuqwMHuq8CIChWv8yTJBed8/wHaHYZ9BXHxgns3jOdJn7f\n"
    "DHHYbMSg\n"
    "-----END CERTIFICATE-----\n";

static const char tls_key[] = "-----BEGIN PRIVATE KEY-----\n"
                              "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgErG3EtjINMgn7G2m\n"
                              "GFrVZ07FfM7laKkLw5PnUDNDhVOhRANCAASrDxSZ2fmtMu6um3IN3wTWn3gHwyLO\n"
                              "nKYS+QAYqo6F0XMgEoyoQboGroNjPnHMyInA9keGO8O9ZNX2szg4vQ2p\n"
                              "-----END PRIVATE KEY-----\n";

#endif
