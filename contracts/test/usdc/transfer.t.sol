// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

import {ArcSystemLog} from "../../src/ArcSystemLog.sol";
import {DevUsdc} from "../../src/DevUsdc.sol";
import {GatewayTest} from "../support/GatewayTest.sol";
import {Vm, vm} from "../support/Vm.sol";

/// Faucet, blocklist, and the two logs of every movement.
contract TransferTest is GatewayTest {
    event Transfer(address indexed from, address indexed to, uint256 value);
    event Blacklisted(address indexed account);
    event UnBlacklisted(address indexed account);

    address private constant SYSTEM = 0xffffFFFfFFffffffffffffffFfFFFfffFFFfFFfE;

    function test_theFaucetGivesUpToItsLimit(uint256 value) public {
        uint256 most = usdc.FAUCET_VALUE_MAX();
        value = _bound(value, 0, most);
        usdc.faucet(alice.addr, value);
        vm.assertEq(usdc.balanceOf(alice.addr), value);
        vm.assertEq(usdc.totalSupply(), value);
        vm.expectRevert(abi.encodeWithSelector(DevUsdc.FaucetValueTooLarge.selector, most + 1, most));
        usdc.faucet(alice.addr, most + 1);
    }

    function test_theCopyAtUsdcsAddressIsWhole() public view {
        vm.assertEq(usdc.name(), "USDC");
        vm.assertEq(usdc.symbol(), "USDC");
        vm.assertEq(usdc.version(), "2");
        vm.assertEq(usdc.decimals(), 6);
        vm.assertEq(usdc.blacklister(), blacklister);
        vm.assertEq(usdc.totalSupply(), 0);
    }

    // The trap of Arc: one transfer, two logs, the same first topic. A watcher that takes both credits twice, and by
    // the wrong factor.
    function test_attack_everyMovementIsLoggedTwice(uint256 value) public {
        value = _bound(value, 1, 100 * USDC);
        usdc.faucet(alice.addr, 100 * USDC);
        vm.recordLogs();
        vm.prank(alice.addr);
        usdc.transfer(bob.addr, value);

        Vm.Log[] memory logs = vm.getRecordedLogs();
        vm.assertEq(logs.length, 2);
        for (uint256 i = 0; i < 2; ++i) {
            vm.assertEq(logs[i].topics[0], Transfer.selector);
            vm.assertEq(logs[i].topics[1], _padded(alice.addr));
            vm.assertEq(logs[i].topics[2], _padded(bob.addr));
        }
        vm.assertEq(logs[0].emitter, SYSTEM);
        vm.assertEq(abi.decode(logs[0].data, (uint256)), value * 1e12);
        vm.assertEq(logs[1].emitter, USDC_ADDRESS);
        vm.assertEq(abi.decode(logs[1].data, (uint256)), value);
    }

    function test_theSystemIsSilentAboutNothingAndAboutOneself() public {
        usdc.faucet(alice.addr, USDC);
        vm.recordLogs();
        vm.startPrank(alice.addr);
        usdc.transfer(alice.addr, USDC);
        usdc.transfer(bob.addr, 0);
        vm.stopPrank();
        Vm.Log[] memory logs = vm.getRecordedLogs();
        vm.assertEq(logs.length, 2);
        vm.assertEq(logs[0].emitter, USDC_ADDRESS);
        vm.assertEq(logs[1].emitter, USDC_ADDRESS);
    }

    function test_elsewhereThereIsOneLog() public {
        vm.etch(SYSTEM, "");
        vm.recordLogs();
        usdc.faucet(alice.addr, USDC);
        vm.assertEq(vm.getRecordedLogs().length, 1);
    }

    function test_attack_nobodyElseSpeaksForTheSystem(address anyone) public {
        vm.assume(anyone != USDC_ADDRESS);
        vm.expectRevert(abi.encodeWithSelector(ArcSystemLog.OnlyToken.selector, anyone, USDC_ADDRESS));
        vm.prank(anyone);
        ArcSystemLog(SYSTEM).logTransfer(alice.addr, bob.addr, 1e18);
    }

    function test_aBlockedAddressNeitherSendsNorReceives() public {
        usdc.faucet(alice.addr, USDC);
        usdc.faucet(bob.addr, USDC);
        vm.expectEmit(USDC_ADDRESS);
        emit Blacklisted(bob.addr);
        vm.prank(blacklister);
        usdc.blacklist(bob.addr);
        vm.assertEq(usdc.isBlacklisted(bob.addr), true);

        bytes memory blocked = abi.encodeWithSelector(DevUsdc.BlockedAddress.selector, bob.addr);
        vm.expectRevert(blocked);
        vm.prank(alice.addr);
        usdc.transfer(bob.addr, 1);
        vm.expectRevert(blocked);
        vm.prank(bob.addr);
        usdc.transfer(alice.addr, 1);
        vm.expectRevert(blocked);
        usdc.faucet(bob.addr, 1);

        vm.expectEmit(USDC_ADDRESS);
        emit UnBlacklisted(bob.addr);
        vm.prank(blacklister);
        usdc.unBlacklist(bob.addr);
        vm.prank(bob.addr);
        usdc.transfer(alice.addr, 1);
        vm.assertEq(usdc.balanceOf(alice.addr), USDC + 1);
    }

    function test_attack_onlyTheBlacklisterBlocks(address anyone) public {
        vm.assume(anyone != blacklister);
        bytes memory refused = abi.encodeWithSelector(DevUsdc.OnlyBlacklister.selector, anyone, blacklister);
        vm.startPrank(anyone);
        vm.expectRevert(refused);
        usdc.blacklist(alice.addr);
        vm.expectRevert(refused);
        usdc.unBlacklist(alice.addr);
        vm.stopPrank();
    }
}
