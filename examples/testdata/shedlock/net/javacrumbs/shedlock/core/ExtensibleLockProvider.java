package net.javacrumbs.shedlock.core;

/** A stand-in for the tests, as LockProvider is. */
public interface ExtensibleLockProvider extends LockProvider {}
