"""Publishes the merged logs on a website."""


def maybe_publish(logs_dir: str, website: str | None = None) -> bool:
    """Publishes a folder of logs on a web server, if there is one to publish on.

    There is no setting for a server, so the trainer names none and nothing happens.

    Args:
      logs_dir: folder with hyper.js.
      website: address of the server; not used.
    Returns:
      Whether anything was published, which is always False.
    Source: the notebook's function of that name, which did nothing either until a server was set.
    """
    del logs_dir, website
    return False
