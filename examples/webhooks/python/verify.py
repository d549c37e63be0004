import base64
import hashlib
import hmac
import json
import time

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils


def verify(headers, body, token, want, key_of):
    """Return the claims of a genuine delivery. After any exception, answer 401."""
    if not hmac.compare_digest(headers["X-A2A-Notification-Token"].encode(), token.encode()):
        raise ValueError("another token")
    head, payload, signature = headers["X-A2A-Signature"].split(".")
    header, claims, signature = json.loads(decode(head)), json.loads(decode(payload)), decode(signature)
    if header["alg"] != "ES256" or "crit" in header:
        raise ValueError("not signed with ES256")
    r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
    signed = f"{head}.{payload}".encode()
    key_of(header["kid"]).verify(utils.encode_dss_signature(r, s), signed, ec.ECDSA(hashes.SHA256()))
    want = want | {"request_body_sha256": hashlib.sha256(body).hexdigest()}
    for name in want:
        if claims[name] != want[name]:
            raise ValueError(f"another {name}")
    if not claims["iat"] - 60 <= time.time() <= claims["exp"] + 60:
        raise ValueError("signed at another time")
    return claims


def decode(text):
    return base64.urlsafe_b64decode(text + "==")
