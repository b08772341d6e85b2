"""Names of secrets: one list for command lines, properties, texts, events and connections.

Tests: ``tests/conversion/test_redaction.py``.
"""

from __future__ import annotations

import re

KINDS_OF_KEYS = (
    *("access", "account", "api", "azure", "encryption", "master", "private", "shared", "signing"),
    *("ssh", "storage"),
)
"""Words before ``key`` that make it a secret, unlike a primary key."""
SECRET_WORDS = (
    *("secret", "passw", "passphrase", "pwd", "token", "credential", "authorization", "jaas", "signature"),
    *("azure.sas", "azure_sas", "user.info", "key.pem"),
)
"""Other words in names of secrets: those of Spark's default of ``spark.redaction.regex``, and more."""
SECRET_NAME = re.compile(
    rf"{'|'.join(map(re.escape, SECRET_WORDS))}|(?:{'|'.join(KINDS_OF_KEYS)})[._-]?key(?![._-]?(?:gen|provider|size))",
    re.IGNORECASE,
)
"""Pattern that is found in the names of secrets."""
